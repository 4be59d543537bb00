package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manCommand writes the man pages, for those who package claimctl. Cobra's own
// writer takes three more modules, and takes the tables in the texts for prose.
func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Args: cobra.ExactArgs(1), Hidden: true, Short: "Write the man pages into a directory",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			n, err := writePages(args[0], cmd.Root())
			if err != nil {
				return err
			}
			a.say("wrote %d man pages into %s", n, args[0])
			return nil
		},
	}
}

// writePages writes the page of a command and those of all below it.
func writePages(dir string, cmd *cobra.Command) (int, error) {
	var page strings.Builder
	writePage(&page, cmd)
	if err := os.WriteFile(filepath.Join(dir, pageName(cmd)+".1"), []byte(page.String()), 0o644); err != nil {
		return 0, err
	}
	n := 1
	for _, sub := range pagesBelow(cmd) {
		m, err := writePages(dir, sub)
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

// pagesBelow are the commands and topics below one that have pages.
func pagesBelow(cmd *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
			all = append(all, sub)
		}
	}
	return all
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

func writePage(w io.Writer, cmd *cobra.Command) {
	put := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	put(`.TH "%s" "1" "" "etcdclaims" "claimctl"`, strings.ToUpper(pageName(cmd)))
	put(".SH NAME\n%s \\- %s", roff(pageName(cmd)), roff(cmd.Short))
	if cmd.Runnable() {
		put(".SH SYNOPSIS\n.B %s", roff(cmd.UseLine()))
	}
	put(".SH DESCRIPTION")
	putText(w, fallback(cmd.Long, cmd.Short+"."))
	if cmd.Example != "" {
		put(".SH EXAMPLES\n.nf\n%s\n.fi", roff(cmd.Example))
	}
	putFlags(w, "OPTIONS", cmd.NonInheritedFlags())
	putFlags(w, "OPTIONS OF ALL COMMANDS", cmd.InheritedFlags())
	var related []string
	if cmd.HasParent() {
		related = append(related, pageName(cmd.Parent()))
	}
	for _, sub := range pagesBelow(cmd) {
		related = append(related, pageName(sub))
	}
	if len(related) > 0 {
		put(".SH SEE ALSO\n%s", roff(strings.Join(related, "(1), ")+"(1)"))
	}
}

// putText writes paragraphs. Lines that are indented stay as they are.
func putText(w io.Writer, text string) {
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		switch {
		case strings.Contains("\n"+paragraph, "\n  "):
			_, _ = fmt.Fprintf(w, ".PP\n.nf\n%s\n.fi\n", roff(paragraph))
		default:
			_, _ = fmt.Fprintf(w, ".PP\n%s\n", roff(paragraph))
		}
	}
}

func putFlags(w io.Writer, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	_, _ = fmt.Fprintf(w, ".SH %s\n", title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		names := "--" + f.Name
		if f.Shorthand != "" {
			names = "-" + f.Shorthand + ", " + names
		}
		value, usage := pflag.UnquoteUsage(f)
		switch f.DefValue {
		case "", "false", "0", "[]", "0s":
		default:
			usage += " (default " + f.DefValue + ")"
		}
		_, _ = fmt.Fprintf(w, ".TP\n.B %s\n%s\n", roff(strings.TrimSpace(names+" "+value)), roff(usage))
	})
}

// roff escapes what troff would obey.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
