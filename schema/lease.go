package schema

// StoredLease is a lease event as it is stored, with where it came from.
type StoredLease struct {
	Lease
	Payload Hash
	Position
}

// StoredOther is a meter or an outage event as it is stored.
type StoredOther struct {
	Event
	Payload Hash
	Position
}

// LeaseContent is a content of a lease event's identity. Counted says whether it is
// the one that was stored first and that no correction took out.
type LeaseContent struct {
	StoredLease
	Counted bool
}

// LeaseSegment is the state of an instance over [FromMs, ToMs), with the
// attributes that its lease events gave it by then.
type LeaseSegment struct {
	Owner         // of the lease: Node is always empty
	FromMs  int64 // when the event took effect
	ToMs    int64 // when the next one did; LeaseOpen = none has yet
	State   string
	Gpus    int64  // how many are leased
	SKU     string // these five as the lease events say them; a price may depend on each
	Plan    string
	Tenancy string
	DCTier  string
	// Workload is what the instance is for.
	Workload string
	Source   string // identity of the event that began the segment
	ID       string
	Payload  Hash
	Position
}

// LeaseOpen is the end of a segment that no event has ended.
const LeaseOpen = 1<<63 - 1

// Held says whether the instance holds its GPUs, so that their time is allocated
// to it. It does from the moment they are set aside for it until they are given
// back: an instance that is stopping has not given them back yet.
func (s *LeaseSegment) Held() bool {
	switch s.State {
	case "provisioning", "running", "stopping":
		return true
	}
	return false
}

// Idle says whether held time that no usage event covers is known to be idle: a
// GPU that is set aside for an instance that does not run yet does nothing. Of
// an instance that runs, or is stopping, nothing is known without usage events.
func (s *LeaseSegment) Idle() bool { return s.State == "provisioning" }
