package pricing

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
)

// Document is one file of what a tenant pays by: exactly one of Book, Contract and
// Profile is set.
type Document struct {
	Kind     string // book, contract or profile
	Name     string // "default", the id of the contract, the platform of the profile
	Hash     string // SHA-256 of the bytes, lower-case hexadecimal
	Version  string // digest of what it says: [Book.Hash], else Hash
	Book     *Book
	Contract *Contract
	Profile  *Profile
}

// ReadDocument reads a document of any kind, which its top-level keys tell. Errors are
// as for [Parse]; those of what is none of them are those of a price book.
func ReadDocument(name string, data []byte) (*Document, error) {
	sum := sha256.Sum256(data)
	d := &Document{Hash: hex.EncodeToString(sum[:])}
	d.Version = d.Hash
	var err error
	switch d.Kind = kindOf(data); d.Kind {
	case "contract":
		if d.Contract, err = ParseContract(name, data); err == nil {
			d.Name = d.Contract.ID
		}
	case "profile":
		if d.Profile, err = ParseProfile(name, data); err == nil {
			d.Name = d.Profile.Platform
		}
	default:
		if d.Book, err = Parse(name, data); err == nil {
			d.Name, d.Version = "default", d.Book.Hash
		}
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

// kindOf looks at the keys only: what else is wrong with a document is said by its
// parser.
func kindOf(data []byte) string {
	p := &parser{}
	var keys []string
	if root := p.document(data); root != nil {
		pairs, _ := pairsOf(root)
		for _, pair := range pairs {
			key, _ := scalar(pair.Key)
			keys = append(keys, key)
		}
	}
	has := func(key string) bool { return slices.Contains(keys, key) }
	switch {
	case has("prices"):
		return "book"
	case has("contract"):
		return "contract"
	case has("platform") || has("billed"):
		return "profile"
	}
	return "book"
}
