package producer

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/gpumeter/gpumeter/schema"
)

// A record is one event on disk:
//
//	4 bytes   CRC-32C of all that follows
//	16 bytes  hash of source and id
//	8 bytes   sequence; 0 while the event is unfinished
//	the rest  the event in the compact wire form, without its sequence
//
// The sequence is apart because it is given inside the transaction, after the
// event was encoded. The checksum is there because the file format has none.
const (
	recordIDAt       = 4
	recordSequenceAt = 20
	recordEventAt    = 28
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encodeRecord(u *schema.Usage) ([]byte, error) {
	if err := u.Validate(); err != nil {
		return nil, fmt.Errorf("producer: spool: %w", err)
	}
	plain := *u
	plain.Sequence = 0
	payload, err := schema.EncodeCompact([]schema.Usage{plain})
	if err != nil {
		return nil, fmt.Errorf("producer: spool: %w", err)
	}
	r := make([]byte, recordEventAt, recordEventAt+len(payload))
	id := binary.AppendUvarint(nil, uint64(len(u.Source)))
	id = append(append(id, u.Source...), u.ID...)
	sum := sha256.Sum256(id)
	copy(r[recordIDAt:recordSequenceAt], sum[:])
	r = append(r, payload...)
	setSequence(r, 0)
	return r, nil
}

func encodeAll(events []schema.Usage) ([][]byte, error) {
	records := make([][]byte, len(events))
	for i := range events {
		var err error
		if records[i], err = encodeRecord(&events[i]); err != nil {
			return nil, err
		}
	}
	return records, nil
}

func recordID(r []byte) []byte { return r[recordIDAt:recordSequenceAt] }

func setSequence(r []byte, v uint64) {
	binary.BigEndian.PutUint64(r[recordSequenceAt:], v)
	binary.BigEndian.PutUint32(r, crc32.Checksum(r[recordIDAt:], castagnoli))
}

// checkRecord verifies the checksum without decoding.
func checkRecord(r []byte) error {
	if len(r) <= recordEventAt || binary.BigEndian.Uint32(r) != crc32.Checksum(r[recordIDAt:], castagnoli) {
		return fmt.Errorf("%w: a record of %d bytes fails its checksum", ErrSpoolCorrupt, len(r))
	}
	return nil
}

func decodeRecord(r []byte) (schema.Usage, error) {
	if err := checkRecord(r); err != nil {
		return schema.Usage{}, err
	}
	// The decoder may keep the bytes, and those of the file live only as long as
	// the transaction.
	d := schema.Decode(schema.ContentTypeCompact, bytes.Clone(r[recordEventAt:]))
	if len(d.Usage) != 1 {
		return schema.Usage{}, fmt.Errorf("%w: a record holds %d events", ErrSpoolCorrupt, len(d.Usage))
	}
	u := d.Usage[0].Event
	u.Sequence = binary.BigEndian.Uint64(r[recordSequenceAt:])
	return u, nil
}

// join writes records one after the other, each with its length.
func join(records [][]byte) []byte {
	var b []byte
	for _, r := range records {
		b = append(binary.AppendUvarint(b, uint64(len(r))), r...)
	}
	return b
}

// splitRecords reads what join wrote, into memory of its own.
func splitRecords(b []byte) (events []schema.Usage, records [][]byte, err error) {
	for len(b) > 0 {
		n, used := binary.Uvarint(b)
		if used <= 0 || n > uint64(len(b)-used) {
			return nil, nil, fmt.Errorf("%w: the unfinished events are cut short", ErrSpoolCorrupt)
		}
		r := bytes.Clone(b[used : used+int(n)])
		b = b[used+int(n):]
		u, err := decodeRecord(r)
		if err != nil {
			return nil, nil, err
		}
		events, records = append(events, u), append(records, r)
	}
	return events, records, nil
}
