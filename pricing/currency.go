package pricing

import "strings"

// iso4217 lists the active currency codes of ISO 4217, grouped by the number of
// digits after the point that amounts are written with. Codes of metals, funds
// and tests are left out: nobody rents a GPU for them.
var iso4217 = map[int]string{
	0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
	2: "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CNY COP CRC CUP " +
		"CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD " +
		"KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN " +
		"NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC " +
		"SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD UYU UZS VES WST XCD XCG YER ZAR ZMW ZWG",
	3: "BHD IQD JOD KWD LYD OMR TND",
}

// minorDigits maps a currency code to its digits after the point.
var minorDigits = func() map[string]int {
	m := map[string]int{}
	for digits, codes := range iso4217 {
		for code := range strings.FieldsSeq(codes) {
			m[code] = digits
		}
	}
	return m
}()

// KnownCurrency says whether code is an active ISO 4217 code, in capitals.
func KnownCurrency(code string) bool {
	_, ok := minorDigits[code]
	return ok
}

// MinorDigits returns how many digits after the point amounts of the currency
// are written with at least: 0 for yen, 2 for dollars and for unknown codes.
func MinorDigits(currency string) int {
	if d, ok := minorDigits[currency]; ok {
		return d
	}
	return 2
}
