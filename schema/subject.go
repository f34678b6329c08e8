package schema

import (
	"fmt"
	"strings"
)

// SubjectRoot begins every subject of version 1.
const SubjectRoot = "gpumeter.v1"

// SubjectAll matches every event subject.
const SubjectAll = SubjectRoot + ".>"

// DefaultTenant is the tenant of an installation that has only one.
const DefaultTenant = "default"

// Address is what a subject says about an event: who owns it and who may have
// sent it. The server authorises subjects, so an Address is trusted where the
// payload is not.
type Address struct {
	Tenant string
	Source string
	Kind   string // usage, lease, meter, outage, correction, or mixed for a batch of several
}

// Subject returns gpumeter.v1.<tenant>.<source token>.<kind>.
func (a Address) Subject() string {
	return SubjectRoot + "." + Token(a.Tenant) + "." + Token(a.Source) + "." + a.Kind
}

// ParseSubject reads a subject back. It is the inverse of Address.Subject.
func ParseSubject(subject string) (Address, error) {
	rest, ok := strings.CutPrefix(subject, SubjectRoot+".")
	parts := strings.Split(rest, ".")
	if !ok || len(parts) != 3 {
		return Address{}, fault(KindMisdirected, "subject", "%q is not %s.<tenant>.<source>.<kind>", subject, SubjectRoot)
	}
	tenant, err := untoken(parts[0])
	if err != nil {
		return Address{}, err
	}
	source, err := untoken(parts[1])
	if err != nil {
		return Address{}, err
	}
	return Address{Tenant: tenant, Source: source, Kind: parts[2]}, nil
}

// Token writes s as one subject token. Letters, digits, "-" and "_" stand for
// themselves, every other byte becomes "~" and two hex digits, so that two
// different names never share a token. The empty string becomes "~".
func Token(s string) string {
	if s == "" {
		return "~"
	}
	plain := true
	for i := 0; i < len(s); i++ {
		if !plainByte(s[i]) {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if plainByte(s[i]) {
			b.WriteByte(s[i])
		} else {
			fmt.Fprintf(&b, "~%02X", s[i])
		}
	}
	return b.String()
}

func plainByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

func untoken(t string) (string, error) {
	if t == "~" {
		return "", nil
	}
	var b strings.Builder
	for i := 0; i < len(t); i++ {
		if t[i] != '~' {
			if !plainByte(t[i]) {
				return "", fault(KindMisdirected, "subject", "token %q holds a byte that must be written as ~XX", t)
			}
			b.WriteByte(t[i])
			continue
		}
		if i+2 >= len(t) {
			return "", fault(KindMisdirected, "subject", "token %q ends inside ~XX", t)
		}
		hi, lo := unhex(t[i+1]), unhex(t[i+2])
		if hi < 0 || lo < 0 || plainByte(byte(hi<<4|lo)) {
			return "", fault(KindMisdirected, "subject", "token %q is not in its one canonical form", t)
		}
		b.WriteByte(byte(hi<<4 | lo))
		i += 2
	}
	if b.Len() == 0 {
		return "", fault(KindMisdirected, "subject", "empty token")
	}
	return b.String(), nil
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
