package serve

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/transport"
	"github.com/wheelworkhq/wheelwork/node"
)

// addPeople adds the flags that say how people sign in to a server. The returned function reads them,
// after the limits with the trusted proxies.
func addPeople(cmd *cobra.Command, conf *node.PeopleConfig, limits *transport.Limits) func(*cobra.Command) error {
	flags := cmd.Flags()
	legacy := flags.String("legacy-tokens", "", "accept the administrator's token in the file token of the data directory: `on` or off (default what was chosen before; in a new directory on, or off with --listen beyond this machine)")
	flags.StringVar(&conf.PublicURL, "public-url", "", "`URL` at which people reach this installation, for example that of a proxy: https, or http on this machine (default the address of --listen; with --oidc-issuer it is needed)")
	p := &conf.OIDC
	flags.StringVar(&p.Issuer, "oidc-issuer", "", "`URL` of the OpenID provider that signs people in (default people have a password of this server)")
	flags.StringVar(&p.ClientID, "oidc-client-id", "", "`id` that the provider has given to this installation")
	flags.StringVar(&conf.OIDCSecretFile, "oidc-client-secret-file", "", "`file` with the secret that the provider has given with it (default a public client, which needs none)")
	flags.StringVar(&p.NameClaim, "oidc-name-claim", "", "`claim` with the name of a new user (default preferred_username, or a verified email if there is none)")
	flags.StringVar(&p.GroupsClaim, "oidc-groups-claim", "groups", "`claim` with the groups of a person, whose bindings are those of the principals group:NAME")
	flags.StringSliceVar(&p.Scopes, "oidc-scope", []string{"profile", "email"}, "`scope` that is requested beside openid; may be repeated")
	flags.StringVar(&p.Title, "oidc-title", "", "`name` of the provider on the sign-in page (default its host)")
	flags.StringVar(&conf.AuthProxy.Header, "auth-proxy-header", "", "`NAME` of the header in which an authenticating proxy of --trusted-proxy names the user of the console, as X-Forwarded-User (default none: no header signs a user in)")
	flags.StringVar(&conf.AuthProxy.Groups, "auth-proxy-groups-header", "", "`NAME` of the header in which it names the groups of the user, with commas (default none)")
	return func(cmd *cobra.Command) error {
		if conf.LegacyTokens = node.LegacyTokens(*legacy); !slices.Contains([]node.LegacyTokens{node.LegacyAuto, node.LegacyOn, node.LegacyOff}, conf.LegacyTokens) {
			return command.Usage(cmd, "--legacy-tokens %q: want on or off", *legacy)
		}
		if err := conf.AuthProxy.Check(limits.TrustedProxies); err != nil {
			return command.Usage(cmd, "%v", err)
		}
		if conf.PublicURL != "" {
			if _, err := node.PublicOrigin(conf.PublicURL); err != nil {
				return command.Usage(cmd, "--public-url %.200q: %v", conf.PublicURL, err)
			}
		}
		if p.Issuer == "" {
			for _, flag := range []string{"oidc-client-id", "oidc-client-secret-file", "oidc-name-claim", "oidc-title"} {
				if cmd.Flag(flag).Changed {
					return command.Usage(cmd, "--%s needs --oidc-issuer, the provider that it is about", flag)
				}
			}
			return nil
		}
		if conf.PublicURL == "" {
			return command.Usage(cmd, "--public-url \"\": with --oidc-issuer the address at which people reach this installation is needed, as https://wheelwork.example")
		}
		p.Callback = strings.TrimRight(conf.PublicURL, "/") + node.CallbackPath // as the provider knows it
		if err := p.Check(); err != nil {
			return command.Usage(cmd, "--oidc-issuer, --oidc-client-id, --public-url: %v", err)
		}
		return nil
	}
}
