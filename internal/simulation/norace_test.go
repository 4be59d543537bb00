//go:build !race

package simulation_test

// defaultSeeds is how many runs go test does.
const defaultSeeds = 60
