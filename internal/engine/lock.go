package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrInUse is wrapped by the error of [Start] when another engine holds the
// folder.
var ErrInUse = errors.New("the folder is in use by another engine")

// orphanWait is how long Start waits for the engine of a dead process to end.
const orphanWait = orphanGrace + 10*time.Second

// acquireLock takes the lock on the folder and notes who holds it.
//
// The child inherits the open file, so the lock is held until both the parent
// and its child are gone: a parent killed with SIGKILL leaves a child that
// takes a moment to end, and nobody may open the folder before it has. When
// the noted holder is no longer alive, that is the case, and it is waited for.
func acquireLock(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	giveUp := time.Now().Add(orphanWait)
	for {
		err := flock(f)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		holder := readHolder(path)
		if pidAlive(holder) || time.Now().After(giveUp) {
			_ = f.Close()
			return nil, fmt.Errorf("%w: process %d holds %s; stop it, or use another folder", ErrInUse, holder, path)
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("%w: process %d is gone, its engine is still ending: %w", ErrInUse, holder, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err := f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return f, nil
}

func flock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != syscall.EINTR {
			return err
		}
	}
}

// readHolder returns the noted process id, or 0 when there is none (yet).
func readHolder(path string) int {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}

// pidAlive says whether the process exists. One that has ended and that nobody
// has asked for its exit code yet (a zombie) does not count.
func pidAlive(pid int) bool {
	if pid <= 0 {
		return false
	}
	if err := syscall.Kill(pid, 0); err != nil && !errors.Is(err, syscall.EPERM) {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true // no such file system, or not ours to read
	}
	// "pid (name) state ...", where the name may hold anything.
	_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}
