// Package tick is the protocol of schedules. It has no I/O: a step builds a request from what is
// known, and judges the reply. Package sched sends the requests.
//
// [Job.Plan] is what is due. An [Admission] is the decision of an owner about that, once: it moves the
// high-water mark, and lets ticks wait or leaves them out, as the job's [Overlap] requires. A
// [Prompt] also begins the tick. [Begin] begins a tick that waits, and [End] ends its run. What an
// owner does about the run of a process that died is [Settle].
//
// Steps of an owner, and [End], are carried out under the guard of a claim, which their sender adds.
//
// The package imports neither context nor sync, no logger, no network and no client of etcd. It
// reads no clock: its callers have the time.
package tick
