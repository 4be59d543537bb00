package grpcmw

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// stampedStream is a client's stream that sends nothing once the claim behind its
// context is over.
type stampedStream struct {
	grpc.ClientStream
	ctx     context.Context // of the caller
	abort   context.CancelCauseFunc
	many    bool // the server streams
	refused refused
}

// may returns nil if more may be sent. Otherwise it aborts the stream.
func (s *stampedStream) may() error {
	if r := s.refused.get(); r != nil {
		return r
	}
	r := mayStill(s.ctx)
	if r == nil {
		return nil
	}
	r = s.refused.set(r)
	s.abort(r)
	return r
}

// after explains the error of a step. If the stream has ended, it also releases
// the stream's context.
func (s *stampedStream) after(err error, over bool) error {
	if r := s.refused.get(); r != nil && err != nil {
		return r // not the error of the abort
	}
	err = explain(s.ctx, err)
	if over {
		s.abort(nil)
	}
	return err
}

func (s *stampedStream) SendMsg(m any) error {
	if err := s.may(); err != nil {
		return err
	}
	err := s.ClientStream.SendMsg(m)
	return s.after(err, err != nil && !errors.Is(err, io.EOF))
}

func (s *stampedStream) CloseSend() error {
	if err := s.may(); err != nil {
		return err
	}
	return s.after(s.ClientStream.CloseSend(), false)
}

func (s *stampedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	return s.after(err, err != nil || !s.many)
}

func (s *stampedStream) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	return md, s.after(err, err != nil)
}
