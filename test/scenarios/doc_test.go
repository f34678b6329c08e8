// Package scenarios_test runs the scenario files of this folder against the whole
// program: real processes, the embedded stream and the embedded database, and a
// clock that the scenario sets. README.md says how to read and to change one.
package scenarios_test
