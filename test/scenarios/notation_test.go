package scenarios_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The human notation of events, one a line; README.md lists all forms. It is
// translated to the JSON Lines that the program reads and checked no further than
// that needs: what is wrong with an event is for the program to say.

// notation translates a file. Errors name the file and the line.
func notation(file, text string) ([]byte, error) {
	var out []byte
	var faults []error
	for i, line := range strings.Split(text, "\n") {
		events, err := translate(line)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s:%d: %w", file, i+1, err))
		}
		for _, e := range events {
			b, err := json.Marshal(e)
			if err != nil {
				return nil, err
			}
			out = append(append(out, b...), '\n')
		}
	}
	return out, errors.Join(faults...)
}

type object = map[string]any

// translate turns a line into its events: none for an empty line or a comment,
// several for one with times=.
func translate(line string) ([]object, error) {
	words, err := split(line)
	if err != nil || len(words) == 0 {
		return nil, err
	}
	times, every, words, err := repetition(words)
	if err != nil {
		return nil, err
	}
	var events []object
	for n := range times {
		l := &eventLine{kind: words[0], words: slices.Clone(words[1:]), shift: time.Duration(n) * every}
		if times > 1 {
			l.number = "-" + strconv.Itoa(n+1)
		}
		e, err := l.event()
		if err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	return events, nil
}

// split cuts a line into words. A word may hold blanks between double quotes; a
// "#" at the start of a word begins a comment.
func split(line string) (words []string, err error) {
	var word strings.Builder
	inside, quoted := false, false
	end := func() {
		if inside {
			words = append(words, word.String())
			word.Reset()
		}
		inside = false
	}
	for _, r := range line {
		switch {
		case r == '"':
			quoted, inside = !quoted, true
		case quoted:
			word.WriteRune(r)
		case r == ' ' || r == '\t' || r == '\r':
			end()
		case r == '#' && !inside:
			return words, nil
		default:
			word.WriteRune(r)
			inside = true
		}
	}
	if quoted {
		return nil, errors.New(`a quotation mark (") is not closed`)
	}
	end()
	return words, nil
}

// repetition takes times= and every= out of a line.
func repetition(words []string) (times int, every time.Duration, rest []string, err error) {
	times = 1
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "times":
			if times, err = strconv.Atoi(value); err != nil || times < 1 {
				return 0, 0, nil, fmt.Errorf("times=%s is not a number of at least 1", value)
			}
		case "every":
			if every, err = time.ParseDuration(value); err != nil {
				return 0, 0, nil, fmt.Errorf("every=%s is not a duration such as 60s", value)
			}
		default:
			rest = append(rest, w)
		}
	}
	return times, every, rest, nil
}

// eventLine is a line that is being read, word by word.
type eventLine struct {
	kind   string
	words  []string
	shift  time.Duration // of all its times
	number string        // behind its id
}

var forms = map[string]string{
	"usage":   "usage ID SOURCE UNIT INSTANCE PROJECT FROM..TO [key=value ...]",
	"lease":   "lease ID SOURCE INSTANCE STATE AT [key=value ...]",
	"meter":   "meter ID SOURCE INSTANCE PROJECT METER QUANTITY FROM..TO",
	"outage":  "outage ID SOURCE PLATFORM FROM..TO [region= instance= because=]",
	"retract": "retract ID SOURCE of=SOURCE/ID by=WHO because=WHY",
	"replace": "replace ID SOURCE of=SOURCE/ID by=WHO because=WHY with usage ...",
}

func (l *eventLine) event() (object, error) {
	form, ok := forms[l.kind]
	if !ok {
		return nil, fmt.Errorf("%q is no kind of event; there are usage, lease, meter, outage, retract, replace", l.kind)
	}
	kind := l.kind
	if kind == "retract" || kind == "replace" {
		kind = "correction"
	}
	if len(l.words) < 2 {
		return nil, fmt.Errorf("too short; the form is: %s", form)
	}
	e := object{"specversion": "1.0", "type": "gpumeter." + kind + ".v1", "id": l.words[0] + l.number, "source": l.words[1]}
	l.words = l.words[2:]
	var data object
	var err error
	switch l.kind {
	case "usage":
		data, err = l.positions(e, "unit", "instance", "project", "FROM..TO")
	case "lease":
		data, err = l.positions(e, "instance", "state", "AT")
	case "meter":
		data, err = l.positions(e, "instance", "project", "meter", "quantity", "FROM..TO")
	case "outage":
		data, err = l.positions(e, "platform", "FROM..TO")
	default:
		data, err = l.correction()
	}
	if err != nil {
		return nil, fmt.Errorf("%w; the form is: %s", err, form)
	}
	e["data"] = data
	return e, nil
}

// positions reads the words that have a fixed place, and then the named ones.
func (l *eventLine) positions(e object, names ...string) (object, error) {
	data := object{}
	if len(l.words) < len(names) {
		return nil, fmt.Errorf("%d words are missing", len(names)-len(l.words))
	}
	for i, name := range names {
		word := l.words[i]
		switch name {
		case "FROM..TO":
			from, to, err := l.interval(word)
			if err != nil {
				return nil, err
			}
			data["start"], data["end"] = from, to
		case "AT":
			at, err := l.instant(word)
			if err != nil {
				return nil, err
			}
			data["at"] = at
		default:
			if word != "-" { // nobody, none
				data[name] = word
			}
		}
	}
	for _, word := range l.words[len(names):] {
		if err := l.named(e, data, word); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// named reads one key=value.
func (l *eventLine) named(e, data object, word string) error {
	key, value, ok := strings.Cut(word, "=")
	if !ok {
		return fmt.Errorf("%q is not key=value", word)
	}
	if label, ok := strings.CutPrefix(key, "label."); ok {
		if data["labels"] == nil {
			data["labels"] = map[string]string{}
		}
		data["labels"].(map[string]string)[label] = value
		return nil
	}
	switch key {
	case "util":
		if value == "unknown" {
			data["utilization"] = nil
			return nil
		}
		return number(data, "utilization", value)
	case "active", "idle":
		d, err := time.ParseDuration(value)
		if err != nil {
			return fmt.Errorf("%s is not a duration such as 30s", word)
		}
		data[key+"_ms"] = d.Milliseconds()
	case "memory":
		used, total, _ := strings.Cut(value, "/")
		return errors.Join(number(data, "memory_used_bytes", used), number(data, "memory_total_bytes", total))
	case "energy":
		return number(data, "energy_mj", value)
	case "gpus":
		return number(data, "gpus", value)
	case "share", "model", "node", "platform", "region", "sku", "plan", "tenancy", "dc_tier", "workload", "project", "instance":
		data[key] = value
	case "because":
		data["reason"] = value
	case "seq":
		e["sequence"] = value
	case "sent":
		e["time"] = value
	default:
		return fmt.Errorf("%q is no key of this notation", key)
	}
	return nil
}

var plainNumber = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)

// number keeps the digits as they stand.
func number(data object, key, value string) error {
	if !plainNumber.MatchString(value) {
		return fmt.Errorf("%q is not a number", value)
	}
	data[key] = json.Number(value)
	return nil
}

// correction reads of=, by=, because=, and the event after "with".
func (l *eventLine) correction() (object, error) {
	data := object{"action": l.kind}
	for i, word := range l.words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "of":
			cut := strings.LastIndexByte(value, '/')
			if cut < 0 {
				return nil, fmt.Errorf("%s does not name SOURCE/ID", word)
			}
			data["corrects"] = object{"source": value[:cut], "id": value[cut+1:]}
		case "by":
			data["actor"] = value
		case "because":
			data["reason"] = value
		case "with":
			if i+1 == len(l.words) || forms[l.words[i+1]] == "" {
				return nil, errors.New(`"with" is followed by an event`)
			}
			inner := &eventLine{kind: l.words[i+1], words: l.words[i+2:], shift: l.shift, number: l.number}
			e, err := inner.event()
			if err != nil {
				return nil, err
			}
			data["replacement"] = e
			return data, nil
		default:
			return nil, fmt.Errorf("%q is none of of=, by=, because=, with", word)
		}
	}
	return data, nil
}

func (l *eventLine) instant(word string) (string, error) {
	t, err := time.Parse(time.RFC3339Nano, word)
	if err != nil {
		return "", fmt.Errorf("%q is not a time such as 2026-03-01T10:00:00Z", word)
	}
	return t.Add(l.shift).Format(time.RFC3339Nano), nil
}

// interval reads FROM..TO. TO is a time, a time of day on the same date, or a
// length with a "+" before it.
func (l *eventLine) interval(word string) (from, to string, err error) {
	first, second, ok := strings.Cut(word, "..")
	start, err := time.Parse(time.RFC3339Nano, first)
	if !ok || err != nil {
		return "", "", fmt.Errorf("%q is not FROM..TO such as 2026-03-01T10:00:00Z..10:01:00 or 2026-03-01T10:00:00Z..+60s", word)
	}
	var end time.Time
	if length, isLength := strings.CutPrefix(second, "+"); isLength {
		d, err := time.ParseDuration(length)
		if err != nil {
			return "", "", fmt.Errorf("%q is not a length such as +60s or +1h30m", second)
		}
		end = start.Add(d)
	} else {
		if len(second) > 2 && second[2] == ':' {
			second = start.Format(time.DateOnly) + "T" + strings.TrimSuffix(second, "Z") + start.Format("Z07:00")
		}
		if end, err = time.Parse(time.RFC3339Nano, second); err != nil {
			return "", "", fmt.Errorf("%q is neither a time, nor a time of day, nor a length such as +60s", second)
		}
	}
	return start.Add(l.shift).Format(time.RFC3339Nano), end.Add(l.shift).Format(time.RFC3339Nano), nil
}
