package soak_test

import (
	"fmt"
	"syscall"
)

func mountTmpfs(path string, flags uintptr, bytes uint64) error {
	if err := syscall.Mount("tmpfs", path, "tmpfs", flags, fmt.Sprintf("size=%d", bytes)); err != nil {
		return fmt.Errorf("mount a file system at %s: %w", path, err)
	}
	return nil
}

func remountTmpfs(path string, bytes uint64) error {
	return mountTmpfs(path, syscall.MS_REMOUNT, bytes)
}
