//go:build !race

package simulation_test

// defaultSeeds is how many runs go test does. There are more before a merge.
const defaultSeeds = 20
