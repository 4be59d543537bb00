//go:build !race

package testetcd

const race = false
