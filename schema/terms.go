package schema

// Kinds of documents that a tenant pays by.
const (
	TermsBook     = "book"
	TermsContract = "contract"
	TermsProfile  = "profile"
)

// TermsKinds are all of them.
var TermsKinds = []string{TermsBook, TermsContract, TermsProfile}

// DefaultBook is the name of a tenant's price book.
const DefaultBook = "default"

// TermsVersion is a version of a document. Once stored it never changes.
type TermsVersion struct {
	Tenant      string
	Kind        string // one of TermsKinds
	Name        string // DefaultBook, the id of a contract, the platform of a profile
	Hash        string // SHA-256 of Content, lower-case hexadecimal; empty when Withdrawn
	Version     string // digest of what the document says; empty when Withdrawn
	AppliedAtMs int64  // an answer as of an earlier instant does not see it
	AppliedBy   string
	Reason      string
	Forced      string // why it was applied although it changes closed periods; empty = it changes none
	Withdrawn   bool   // from then on there is no such document
	Content     []byte // YAML as it was given; nil where only the rest was asked for
}
