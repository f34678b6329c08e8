package pricing

import "embed"

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
