package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

var jsonNumber = regexp.MustCompile(`^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?$`)

// A document has bounds, because an alias can repeat values, and contain itself.
const (
	mostValues = 1_000_000
	mostDepth  = 10_000 // as package json has it
)

// yamlValues turns nodes of YAML into values that package json encodes. Numbers keep their
// digits.
type yamlValues struct{ count, depth int }

// of returns the value of a node: nil, a bool, a string, a json.Number, a []any, or a
// map[string]any.
func (v *yamlValues) of(n *yaml.Node) (any, error) {
	v.count, v.depth = v.count+1, v.depth+1
	defer func() { v.depth-- }()
	if v.count > mostValues || v.depth > mostDepth {
		return nil, fmt.Errorf("line %d: the document has more than %d values, or more than %d inside each other", n.Line, mostValues, mostDepth)
	}
	switch tag := n.ShortTag(); {
	case n.Kind == yaml.DocumentNode && len(n.Content) == 1:
		return v.of(n.Content[0])
	case n.Kind == yaml.AliasNode:
		return v.of(n.Alias)
	case n.Kind == yaml.ScalarNode:
		is, err := scalar(n)
		if err != nil {
			err = fmt.Errorf("line %d: %w", n.Line, err)
		}
		return is, err
	case n.Kind == yaml.SequenceNode && tag == "!!seq":
		all := make([]any, len(n.Content))
		for i, item := range n.Content {
			var err error
			if all[i], err = v.of(item); err != nil {
				return nil, err
			}
		}
		return all, nil
	case n.Kind == yaml.MappingNode && tag == "!!map":
		return v.mapping(n)
	default:
		return nil, fmt.Errorf("line %d: the tag %.40q is not supported", n.Line, tag)
	}
}

// mapping returns the value of a mapping, with the keys of the mappings that it merges.
func (v *yamlValues) mapping(n *yaml.Node) (map[string]any, error) {
	all := make(map[string]any)
	var merged []*yaml.Node
	for pair := range slices.Chunk(n.Content, 2) {
		key, value := pair[0], pair[1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.ShortTag() == "!!merge" {
			merged = append(merged, value)
			continue
		}
		if key.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("line %d: a key is not a text", key.Line)
		}
		if _, twice := all[key.Value]; twice {
			return nil, fmt.Errorf("line %d: key %.80q already set", key.Line, key.Value)
		}
		is, err := v.of(value)
		if err != nil {
			return nil, err
		}
		all[key.Value] = is
	}
	for _, value := range merged {
		if err := v.merge(all, value); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// merge adds the keys that a mapping lacks, of a mapping or of a list of them.
func (v *yamlValues) merge(all map[string]any, value *yaml.Node) error {
	is, err := v.of(value)
	if err != nil {
		return err
	}
	list, several := is.([]any)
	if !several {
		list = []any{is}
	}
	for _, one := range list {
		more, isMap := one.(map[string]any)
		if !isMap {
			return fmt.Errorf("line %d: << needs a mapping, or a list of them", value.Line)
		}
		for key, value := range more {
			if _, known := all[key]; !known {
				all[key] = value
			}
		}
	}
	return nil
}

// ambiguous are the words that some programs read as texts, and others as true or false.
var ambiguous = regexp.MustCompile(`^(?i:yes|no|on|off)$`)

func scalar(n *yaml.Node) (any, error) {
	plain := n.Style&^yaml.FlowStyle == 0 // neither quoted nor tagged
	if plain && jsonNumber.MatchString(n.Value) {
		return json.Number(n.Value), nil
	}
	switch tag := n.ShortTag(); tag {
	case "!!null":
		return nil, nil
	case "!!bool":
		return strings.EqualFold(n.Value, "true"), nil
	case "!!int", "!!float":
		return numberOf(n.Value)
	case "!!timestamp", "!!merge":
		return n.Value, nil
	case "!!str":
		if plain && ambiguous.MatchString(n.Value) {
			return nil, fmt.Errorf("%s has more than one meaning in YAML; write true or false, or %q", n.Value, n.Value)
		}
		return n.Value, nil
	default:
		return nil, fmt.Errorf("the tag %.40q is not supported", tag)
	}
}

// numberOf returns a number that JSON would write in another way, such as 0x1F, 1_000 or .5.
func numberOf(text string) (any, error) {
	is := strings.TrimPrefix(strings.ReplaceAll(text, "_", ""), "+")
	if digits, isFraction := strings.CutPrefix(strings.TrimPrefix(is, "-"), "."); isFraction {
		is = strings.TrimSuffix(is, "."+digits) + "0." + digits
	}
	if jsonNumber.MatchString(is) {
		return json.Number(is), nil
	}
	octal := len(is) > 1 && is[0] == '0' && is[1] >= '0' && is[1] <= '9' // or decimal, in YAML 1.2
	if n, isInteger := new(big.Int).SetString(is, 0); isInteger && !octal {
		return json.Number(n.String()), nil
	}
	return nil, fmt.Errorf("the number %.80s cannot be stored; write it as in JSON, or as a text in quotes", text)
}

// mostIndent is how deep values are indented. Deeper ones are on one line.
const mostIndent = 10

// yamlOf reads one value of JSON, and returns it as YAML.
func yamlOf(d *json.Decoder, depth int) (*yaml.Node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	n := &yaml.Node{Kind: yaml.ScalarNode}
	switch is := token.(type) {
	case nil:
		n.Value = "null"
	case bool:
		n.Value = fmt.Sprint(is)
	case json.Number:
		n.Value = is.String()
	case string:
		n = textNode(is)
	case json.Delim:
		n.Kind = yaml.SequenceNode
		if is == '{' {
			n.Kind = yaml.MappingNode
		}
		if depth >= mostIndent {
			n.Style = yaml.FlowStyle
		}
		keys := make(map[string]bool)
		for d.More() {
			item, err := yamlOf(d, depth+1)
			if err != nil {
				return nil, err
			}
			if n.Kind == yaml.MappingNode && len(n.Content)%2 == 0 {
				if keys[item.Value] {
					return nil, fmt.Errorf("key %.80q is there twice, which YAML cannot have; use -o json", item.Value)
				}
				keys[item.Value] = true
			}
			n.Content = append(n.Content, item)
		}
		_, err = d.Token() // the end
	default:
		err = errors.New("unknown token")
	}
	return n, err
}

var (
	// plainText is a text that needs no quotes, unless it has another meaning.
	plainText = regexp.MustCompile(`^[-+*@!/_=.,:;0-9A-Za-z]+(?: [-+*@!/_=.,:;0-9A-Za-z]+)*$`)
	// lines is a text that a block of lines can have.
	lines = regexp.MustCompile(`^[!-~](?:[ -~]*[!-~])?(?:\n(?:[ -~]*[!-~])?)*$`)
)

func textNode(text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Style: yaml.DoubleQuotedStyle}
	switch {
	case strings.Contains(text, "\n") && lines.MatchString(text):
		n.Style = yaml.LiteralStyle
	case plainText.MatchString(text) && !jsonNumber.MatchString(text) && !ambiguous.MatchString(text):
		n.Style = 0 // the encoder adds quotes if the text has another meaning
	}
	return n
}
