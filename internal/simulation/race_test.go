//go:build race

package simulation_test

// defaultSeeds is how many runs go test does: the race detector makes each of
// them some ten times as expensive.
const defaultSeeds = 12
