package explain

import "github.com/etcdclaims/claims/etcdclaims/admin"

// Action returns what an operator did to which object, in one line.
func Action(a admin.Action) string {
	switch {
	case a.Err != nil:
		return "(" + a.Err.Error() + ")"
	case a.Item != "":
		return a.Verb + " " + a.Queue + ", item " + a.Item
	case a.Queue != "":
		return a.Verb + " " + a.Queue
	case a.Job != "":
		return a.Verb + " " + a.Group + ", job " + a.Job
	case a.Member != "":
		return a.Verb + " " + a.Group + ", member " + a.Member
	case a.Group != "":
		return a.Verb + " " + a.Group
	case a.Key != "":
		return a.Verb + " " + a.Key
	}
	return a.Verb
}
