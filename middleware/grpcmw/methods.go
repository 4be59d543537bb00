package grpcmw

import (
	"fmt"
	"strings"
)

// Services reports whether a method is of a service that is the server's own, and
// not one of those that come with gRPC and must answer everybody: health,
// reflection, channelz. It is the default of every Select.
func Services(method string) bool {
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	switch service {
	case "grpc.health.v1.Health", "grpc.channelz.v1.Channelz",
		"grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection":
		return false
	}
	return true
}

// Methods returns a function, to be a Select, that reports whether a method is one of
// those named: by its full name as in generated code, "/shop.Orders/Pay", or with
// all of its service, "/shop.Orders/".
//
// It panics if a name is in neither form.
func Methods(names ...string) func(method string) bool {
	known := make(map[string]bool, len(names))
	for _, name := range names {
		if strings.Count(name, "/") != 2 || name[0] != '/' || strings.HasPrefix(name, "//") {
			panic(fmt.Sprintf("grpcmw: method %q: write /package.Service/Method, or /package.Service/ for all of it", name))
		}
		known[name] = true
	}
	return func(method string) bool {
		return known[method] || known[method[:strings.LastIndexByte(method, '/')+1]]
	}
}

// selected returns the Select of a configuration.
func selected(by func(method string) bool) func(method string) bool {
	if by == nil {
		return Services
	}
	return by
}
