package schema

// Needs protoc 3.21 and protoc-gen-go of the version in go.mod; the result is
// checked in, so building does not need them.
//go:generate protoc -I .. --go_out=.. --go_opt=paths=source_relative schema/usagepb/usage.proto
