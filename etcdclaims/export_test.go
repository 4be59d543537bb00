package etcdclaims

// BackOff is for the test of its channels.
var BackOff = backOff
