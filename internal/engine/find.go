package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// EnvLibrary names the environment variable that says where the library is.
const EnvLibrary = "GPUMETER_ENGINE_LIB"

// ErrLibraryMissing is wrapped by the error of [Find] when there is no
// library. The wrapping error says what to run and where was looked.
var ErrLibraryMissing = errors.New("the ClickHouse library is missing")

// Find returns the absolute path of the ClickHouse library.
//
// An explicit path wins, then the one in GPUMETER_ENGINE_LIB: when such a path
// is given and nothing is there, that is an error and no other place is tried.
// Otherwise the places are: beside the executable and in ../lib (an installed
// program), node_modules in the executable's folder and every one above it (a
// program in bin/), and node_modules in the working directory and the ones
// above it up to the root of the Go module (go run, go test). Outside a Go
// module the folders above the working directory are not tried: others may be
// able to write there, and what is found is loaded as code.
func Find(explicit string) (string, error) {
	for _, given := range []struct{ from, path string }{
		{"the given path", explicit},
		{EnvLibrary, os.Getenv(EnvLibrary)},
	} {
		if given.path == "" {
			continue
		}
		if isFile(given.path) {
			return filepath.Abs(given.path)
		}
		return "", fmt.Errorf("engine: %w: %s is %s and no file is there; correct it, or leave it out after `make engine` (or `npm ci`)",
			ErrLibraryMissing, given.from, given.path)
	}

	var exe string
	if e, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(e); err == nil {
			e = real
		}
		exe = filepath.Dir(e)
	}
	wd, _ := os.Getwd()
	places := placesToLook(exe, wd)
	for _, p := range places {
		if isFile(p) {
			return p, nil
		}
	}
	return "", fmt.Errorf("engine: %w: run `make engine` (or `npm ci`) in the gpumeter checkout, or set %s to the path of libchdb.so, or use a ClickHouse server instead of the embedded engine; looked at:\n  %s",
		ErrLibraryMissing, EnvLibrary, strings.Join(places, "\n  "))
}

// placesToLook lists the candidate files, best first, without repetition.
func placesToLook(exeDir, workDir string) []string {
	var places []string
	add := func(p string) {
		if !slices.Contains(places, p) {
			places = append(places, p)
		}
	}
	names, npm := libraryNames(runtime.GOOS, runtime.GOARCH)
	if exeDir != "" {
		for _, n := range names {
			add(filepath.Join(exeDir, n))
			add(filepath.Join(filepath.Dir(exeDir), "lib", n))
		}
		for _, dir := range upwards(exeDir) {
			for _, n := range names {
				add(filepath.Join(dir, "node_modules", npm, n))
			}
		}
	}
	if workDir != "" {
		dirs := upwards(workDir)
		if root := slices.IndexFunc(dirs, func(d string) bool { return isFile(filepath.Join(d, "go.mod")) }); root >= 0 {
			dirs = dirs[:root+1]
		} else {
			dirs = dirs[:1]
		}
		for _, dir := range dirs {
			for _, n := range names {
				add(filepath.Join(dir, "node_modules", npm, n))
			}
		}
	}
	return places
}

// libraryNames returns the names that the library file may have, and the
// folder of the npm package that holds it.
func libraryNames(goos, goarch string) (names []string, npm string) {
	arch := goarch
	if arch == "amd64" {
		arch = "x64"
	}
	names = []string{"libchdb.so"}
	npm = filepath.Join("@chdb", "lib-"+goos+"-"+arch)
	switch goos {
	case "linux":
		npm += "-gnu"
	case "darwin":
		names = append(names, "libchdb.dylib")
	}
	return names, npm
}

// upwards returns dir and every folder above it.
func upwards(dir string) []string {
	dirs := []string{dir}
	for {
		up := filepath.Dir(dir)
		if up == dir {
			return dirs
		}
		dir = up
		dirs = append(dirs, dir)
	}
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}
