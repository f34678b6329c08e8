package schema

// Message is one message for the stream.
type Message struct {
	Subject     string
	ID          string // Nats-Msg-Id, see [MessageID]
	ContentType string
	Payload     []byte
}

// Receipt is the stream's answer to one message. Only a Receipt without an Err
// says that the message is durable; until then the sender keeps it.
type Receipt struct {
	Sequence  uint64
	Duplicate bool  // the stream had this message id already
	Err       error // refused or outcome unknown: offer it again under the same id
}

// MessageOf makes the message that carries one event as JSON.
func MessageOf(tenant string, e *Event) Message {
	h := e.Header()
	return Message{
		Subject:     Address{Tenant: tenant, Source: h.Source, Kind: Kinds[e.Type()]}.Subject(),
		ID:          MessageID(tenant, h, e.PayloadHash()),
		ContentType: ContentTypeEvent,
		Payload:     EncodeEvent(e),
	}
}

// Delivery is one message as the stream delivers it. It stays the stream's until
// Settle is called, which is only allowed when everything in it is durable at
// the next stage.
type Delivery struct {
	Subject     string
	ContentType string
	Payload     []byte
	Position    // Tenant and Place are for the receiver to fill in
	Settle      func() error
}
