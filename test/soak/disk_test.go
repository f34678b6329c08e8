package soak_test

import (
	"fmt"
	"os"
	"syscall"

	"github.com/gpumeter/gpumeter/internal/testkit/process"
)

// disk is a file system of its own for one part of the pipeline, so that it can be
// full while the others have room. It takes the right to mount; without it the
// part lives in a plain directory, and the faults that need a disk are left out.
type disk struct {
	path    string
	mounted bool
}

const diskBytes = 8 << 30 // memory is only taken by what is written

func newDisk(path string) (*disk, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	d := &disk{path: path}
	d.mounted = mountTmpfs(path, 0, diskBytes) == nil
	if d.mounted {
		process.Mounted(path)
	}
	return d, nil
}

// fill leaves no more room than spare: the file system is made as small as what it
// holds. That is refused when something was written in between.
func (d *disk) fill(spare uint64) (err error) {
	for range 100 {
		var fs syscall.Statfs_t
		if err := syscall.Statfs(d.path, &fs); err != nil {
			return err
		}
		used := (fs.Blocks-fs.Bfree)*uint64(fs.Bsize) + spare
		if err = remountTmpfs(d.path, max(used, uint64(fs.Bsize))); err == nil {
			return nil
		}
	}
	return err
}

func (d *disk) makeRoom() error { return remountTmpfs(d.path, diskBytes) }

// remove takes the file system away. What it holds is copied into the directory
// below it when it is to be kept.
func (d *disk) remove(keep bool) error {
	if !d.mounted {
		return nil
	}
	d.mounted = false
	copied := d.path + ".kept"
	if keep {
		if err := os.CopyFS(copied, os.DirFS(d.path)); err != nil {
			return fmt.Errorf("keep %s: %w", d.path, err)
		}
	}
	if err := process.Unmount(d.path); err != nil || !keep {
		return err
	}
	if err := os.Remove(d.path); err != nil {
		return err
	}
	return os.Rename(copied, d.path)
}
