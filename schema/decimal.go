package schema

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// ParseFixed reads a plain JSON number or decimal text as an integer of 10^-scale
// units, exactly. Digits beyond the scale round half away from zero: they are
// below what a source can measure. An exponent is allowed because encoders of
// JSON write small numbers with one.
func ParseFixed(s string, scale int) (int64, bool) {
	mantissa, exponent := s, 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		e, err := strconv.Atoi(s[i+1:])
		if err != nil || e > 30 || e < -400 {
			return 0, false
		}
		mantissa, exponent = s[:i], e
	}
	negative := strings.HasPrefix(mantissa, "-")
	mantissa = strings.TrimPrefix(mantissa, "-")
	whole, fraction, dotted := strings.Cut(mantissa, ".")
	if whole == "" || dotted && fraction == "" || !digits(whole) || !digits(fraction) {
		return 0, false
	}
	all := whole + fraction
	keep := len(whole) + exponent + scale // digits of all that stay before the cut
	var v int64
	for i := 0; i < keep; i++ {
		d := int64(0)
		if i < len(all) {
			d = int64(all[i] - '0')
		}
		if v > (1<<63-1-d)/10 {
			return 0, false
		}
		v = v*10 + d
	}
	if keep >= 0 && keep < len(all) && all[keep] >= '5' {
		v++
	}
	if v < 0 {
		return 0, false
	}
	if negative {
		v = -v
	}
	return v, true
}

// decimalText writes v times 10^-scale without trailing zeros.
func decimalText(v int64, scale int) string {
	sign := ""
	if v < 0 {
		sign, v = "-", -v
	}
	s := strconv.FormatInt(v, 10)
	if len(s) <= scale {
		s = strings.Repeat("0", scale-len(s)+1) + s
	}
	whole, fraction := s[:len(s)-scale], strings.TrimRight(s[len(s)-scale:], "0")
	if fraction == "" {
		return sign + whole
	}
	return sign + whole + "." + fraction
}

// FormatUtilization writes millionths as a ratio.
func FormatUtilization(millionths int64) string { return decimalText(millionths, 6) }

// FormatShare writes billionths as a ratio.
func FormatShare(billionths int64) string { return decimalText(billionths, 9) }

// farTime writes an instant that may lie outside what RFC 3339 can write.
func farTime(ms int64) string {
	t := time.UnixMilli(ms).UTC()
	if y := t.Year(); y < 0 || y > 9999 {
		return "an instant in the year " + strconv.Itoa(y)
	}
	return t.Format(timeLayout)
}

// clip shortens hostile input before it goes into an error text.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return strings.ToValidUTF8(s, "?")
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strings.ToValidUTF8(s[:cut], "?") + "..."
}
