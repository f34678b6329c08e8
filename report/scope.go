package report

// ScopeError says that a question cannot be answered for some projects only, and the
// asker may not see the others.
type ScopeError struct {
	What string // that was asked for
}

// Error says what would be needed.
func (e *ScopeError) Error() string {
	return e.What + " cannot be told apart by project; it takes a sign-in without a list of projects"
}

// scoped says whether the asker may see some projects only. What belongs to no project
// then is unknown to them, not zero.
func (r *Request) scoped() bool { return r.Projects != nil }

// visible takes from the reason why an event does not count what other events and
// corrections say: those may be about a project that the asker may not see.
func (r *Request) visible(why *ExplainWhy) *ExplainWhy {
	if !r.scoped() {
		return why
	}
	return &ExplainWhy{Kind: why.Kind}
}
