package grpcmw

import (
	"fmt"
	"strings"
)

// Services reports whether a method belongs to a service of the server's own. It
// returns false for services that come with gRPC and must answer everybody:
// health, reflection and channelz. It is the default of every Select.
func Services(method string) bool {
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	switch service {
	case "grpc.health.v1.Health", "grpc.channelz.v1.Channelz",
		"grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection":
		return false
	}
	return true
}

// Methods returns a Select function for the named methods. A name is the full
// name of a method, as in generated code: "/shop.Orders/Pay". The name
// "/shop.Orders/" selects all methods of that service.
//
// Methods panics if a name has neither form.
func Methods(names ...string) func(method string) bool {
	known := make(map[string]bool, len(names))
	for _, name := range names {
		if strings.Count(name, "/") != 2 || name[0] != '/' || strings.HasPrefix(name, "//") {
			panic(fmt.Sprintf("grpcmw: method %q: write /package.Service/Method, or /package.Service/ for all methods", name))
		}
		known[name] = true
	}
	return func(method string) bool {
		return known[method] || known[method[:strings.LastIndexByte(method, '/')+1]]
	}
}

// selected returns the Select of a configuration, or its default.
func selected(by func(method string) bool) func(method string) bool {
	if by == nil {
		return Services
	}
	return by
}
