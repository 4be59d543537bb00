package sched

import "context"

func (s *Scheduler) runAlone(ctx, handlers context.Context) { <-ctx.Done(); _ = handlers }
