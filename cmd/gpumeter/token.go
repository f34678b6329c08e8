package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpumeter/gpumeter/internal/app"
	"github.com/gpumeter/gpumeter/web"
)

const (
	envToken  = "GPUMETER_TOKEN"
	envTokens = "GPUMETER_TOKENS"
)

// token is what a command signs in with. There is no flag for it: other users of the
// machine see command lines, and shells keep them.
func (f *serverFlags) token() (string, error) {
	if f.tokenFile == "" {
		return strings.TrimSpace(os.Getenv(envToken)), nil
	}
	b, err := os.ReadFile(f.tokenFile)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", usagef("--token-file %s holds not one token alone", f.tokenFile)
	}
	return token, nil
}

func signInFlags(f *pflag.FlagSet, o *app.Options) {
	s := &o.SignIn
	f.StringVar(&s.Tokens, "tokens", os.Getenv(envTokens), "`FILE` of who may sign in and do what (YAML; \"gpumeter token new\" makes an entry); it is read again when it changes")
	f.BoolVar(&s.Off, "no-sign-in", false, "everybody who reaches --listen may do everything, although that is not this machine only")
	f.StringVar(&s.PublicURL, "public-url", "", "`URL` that browsers reach the server at, such as https://gpumeter.example.com; https makes cookies secure behind a proxy, and without a sign-in requests for other names are refused")
	f.StringVar(&s.Issuer, "oidc-issuer", "", "`URL` of a provider of OpenID Connect that people sign in with; needs --tokens, --public-url and --oidc-client-id")
	f.StringVar(&s.ClientID, "oidc-client-id", "", "id of this server at the provider; the redirect URI there is PUBLIC-URL/auth/callback")
	f.StringVar(&s.SecretFile, "oidc-client-secret-file", "", "`FILE` with the secret of this server at the provider (default: none, a public client)")
	f.StringVar(&s.Groups, "oidc-roles", "groups", "`CLAIM` of the id token that lists a person's groups; the section groups of the tokens file says what each may do")
}

func tokenCommand() *cobra.Command {
	group := &cobra.Command{Use: "token", Short: "Tokens to sign in with"}
	asGroup(group)
	var name, role, expires string
	var projects []string
	cmd := &cobra.Command{
		Use: "new", Short: "Make a token and its entry in the tokens file", Args: args(cobra.NoArgs),
		Long: "Make a token and print it, once: the first line is the token, the rest is the entry to put below \"tokens:\" in the\n" +
			"file that the server is given with --tokens. The entry holds a hash only; nobody can make the token from it.",
		RunE: func(c *cobra.Command, _ []string) error {
			if name == "" {
				return usagef("--name is missing: whose token it is")
			}
			r, ok := web.ParseRole(role)
			if !ok {
				return usagef("--role %q is none of %s", role, strings.Join(web.Roles(), ", "))
			}
			var until time.Time
			if expires != "" {
				var err error
				if until, err = time.Parse(time.DateOnly, expires); err != nil {
					return usagef("--expires %q is not a date such as 2027-01-01", expires)
				}
			}
			token, entry, err := app.NewToken(name, r, projects, until)
			if err != nil {
				return usagef("%w", err)
			}
			if len(projects) > 0 && r > web.Viewer {
				fmt.Fprintf(c.ErrOrStderr(), "gpumeter: with a list of projects, %s may read only\n", name)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s\n%s", token, entry)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "whose token it is (required)")
	f.StringVar(&role, "role", web.Viewer.String(), "what it allows: "+strings.Join(web.Roles(), ", "))
	f.StringArrayVar(&projects, "project", nil, "project that may be seen (repeatable; default: all)")
	f.StringVar(&expires, "expires", "", "`DATE` (00:00 UTC) from which on it does not work any more (default: never)")
	group.AddCommand(cmd)
	return group
}
