package ownwait

import (
	"runtime"
	"strconv"
	"strings"
)

// Site is the stack of the call that made a claim: the first frames, which are looked up only
// when they are logged.
type Site [6]uintptr

// Caller returns the callers of the function that calls it.
func Caller() (s Site) {
	runtime.Callers(3, s[:])
	return s
}

// String returns the file and the line of the first caller outside package etcdclaims and the
// wrappers of its Run.
func (s Site) String() string {
	where := ""
	for frames, more := runtime.CallersFrames(s[:]), s[0] != 0; more; {
		var f runtime.Frame
		if f, more = frames.Next(); f.File == "" {
			break
		}
		where = f.File + ":" + strconv.Itoa(f.Line)
		wrapper := func(pkg string) bool { return strings.HasPrefix(f.Function, modulePath+pkg+".") }
		if !wrapper("etcdclaims") && !wrapper("etcdclaims/work") && !wrapper("middleware") {
			break
		}
	}
	return where
}

const modulePath = "github.com/etcdclaims/claims/"
