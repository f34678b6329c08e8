package pricing

import (
	"embed"
	"strings"
)

//go:embed profiles/*.yaml
var profileFiles embed.FS

// Profiles returns the profiles that come with the program, in the order of their
// platforms' names. They are made to be edited: a copy, read with [ParseProfile], takes
// the place of the one that is built in.
func Profiles() ([]*Profile, error) {
	files, err := profileFiles.ReadDir("profiles")
	if err != nil {
		return nil, err
	}
	var list []*Profile
	for _, file := range files {
		text, err := profileFiles.ReadFile("profiles/" + file.Name())
		if err != nil {
			return nil, err
		}
		profile, err := ParseProfile(file.Name(), text)
		if err != nil {
			return nil, err
		}
		list = append(list, profile)
	}
	return list, nil
}

// ProfileNames returns the platforms whose profiles come with the program, sorted.
func ProfileNames() []string {
	files, err := profileFiles.ReadDir("profiles")
	if err != nil {
		panic("pricing: the profiles are built in: " + err.Error())
	}
	names := make([]string, len(files))
	for i, file := range files {
		names[i] = strings.TrimSuffix(file.Name(), ".yaml")
	}
	return names
}

// ProfileText returns the profile of a platform as it is written, to be edited; false
// when none comes with the program.
func ProfileText(platform string) ([]byte, bool) {
	text, err := profileFiles.ReadFile("profiles/" + platform + ".yaml")
	return text, err == nil
}
