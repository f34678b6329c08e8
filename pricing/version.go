package pricing

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

// ReadDocument reads a document of any kind, as [ParseAny] does.
func ReadDocument(name string, data []byte) (*Document, error) {
	parsed, err := ParseAny(name, data)
	if err != nil {
		return nil, err
	}
	d := &Document{Hash: digest(data)}
	d.Version = d.Hash
	switch of := parsed.(type) {
	case *Book:
		d.Kind, d.Name, d.Version, d.Book = "book", "default", of.Hash, of
	case *Contract:
		d.Kind, d.Name, d.Contract = "contract", of.ID, of
	case *Profile:
		d.Kind, d.Name, d.Profile = "profile", of.Platform, of
	}
	return d, nil
}
