package report

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"
)

// CSV writes the rows as RFC 4180 with one line of column names. There is no
// line for the totals, because a spreadsheet that adds up a column would count
// everything twice. Unknown is an empty cell.
//
// A cell that a spreadsheet would run as a formula gets a leading "'".
func (r *Report) CSV(w io.Writer) error {
	var lines [][]string
	if r.Kind == "quality" {
		names, values := []string{"from", "to"}, []string{instantIn(utc, r.FromMs), instantIn(utc, r.ToMs)}
		for _, q := range qualityColumns(&r.Quality) {
			names, values = append(names, q.name), append(values, strconv.FormatInt(q.value, 10))
		}
		lines = [][]string{names, values}
	} else {
		lines = r.csvLines()
	}
	return writeCSV(w, lines)
}

func (r *Report) csvLines() [][]string {
	header := append([]string{}, r.By...)
	for _, c := range figureColumns {
		header = append(header, c.name)
	}
	lines := [][]string{append(header, "currency")}
	for i := range r.Rows {
		line := append(make([]string, 0, len(header)+1), r.Rows[i].Keys...)
		for _, c := range figureColumns {
			line = append(line, c.text(&r.Rows[i].Figures, r.Currency))
		}
		lines = append(lines, append(line, r.Currency))
	}
	return lines
}

func writeCSV(w io.Writer, lines [][]string) error {
	out := csv.NewWriter(w)
	out.UseCRLF = true
	for _, line := range lines {
		for i := range line {
			line[i] = harmless(line[i])
		}
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// harmless keeps a name such as "=cmd|..." from being run by a spreadsheet. A
// negative number stays a number.
func harmless(cell string) string {
	if cell == "" || !strings.ContainsRune("=+-@\t\r\n", rune(cell[0])) {
		return cell
	}
	if cell[0] == '-' && isNumber(cell[1:]) {
		return cell
	}
	return "'" + cell
}

func isNumber(s string) bool {
	whole, fraction, dotted := strings.Cut(s, ".")
	return whole != "" && (fraction != "" || !dotted) && strings.Trim(whole+fraction, "0123456789") == ""
}
