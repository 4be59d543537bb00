//go:build race

package testetcd

const race = true
