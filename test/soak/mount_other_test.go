//go:build !linux

package soak_test

import "errors"

func mountTmpfs(string, uintptr, uint64) error {
	return errors.New("mounting is only known for Linux")
}

func remountTmpfs(path string, bytes uint64) error { return mountTmpfs(path, 0, bytes) }
