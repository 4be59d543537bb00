package browser_test

import (
	"testing"

	"github.com/etcdclaims/claims/etcdclaims/webui"
)

// unreadable is a script that returns the texts of a page whose contrast with what is
// behind them is less than WCAG 2 asks for at level AA: 4.5 to 1. A text of the timeline
// is compared with the page and with the bar that it may stand on.
const unreadable = `(() => {
	const color = (text) => {
		const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
		return { r, g, b, a };
	};
	const over = (top, below) => ({
		r: top.r * top.a + below.r * (1 - top.a), g: top.g * top.a + below.g * (1 - top.a), b: top.b * top.a + below.b * (1 - top.a), a: 1,
	});
	const channel = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
	const light = (c) => 0.2126 * channel(c.r) + 0.7152 * channel(c.g) + 0.0722 * channel(c.b);
	const behind = (node) => {
		const all = [];
		for (; node; node = node.parentElement) all.push(color(getComputedStyle(node).backgroundColor));
		return all.reduceRight((below, top) => over(top, below));
	};
	const found = [];
	for (const node of document.body.querySelectorAll("*")) {
		const text = [...node.childNodes].filter((n) => n.nodeType === 3).map((n) => n.nodeValue.trim()).join("") || node.placeholder || "";
		if (text === "" || node.getClientRects().length === 0 || node.nodeName === "TITLE") continue;
		const svg = node.namespaceURI.endsWith("svg"), style = getComputedStyle(node);
		const grounds = [behind(node)], bar = svg && node.parentElement.querySelector(":scope > rect");
		if (bar) grounds.push(over(color(getComputedStyle(bar).fill), grounds[0]));
		for (const ground of grounds) {
			const inks = [color(svg ? style.fill : style.color)];
			if (node.placeholder) inks.push(color(getComputedStyle(node, "::placeholder").color));
			for (const ink of inks) {
				const [a, b] = [light(over(ink, ground)), light(ground)];
				const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
				if (ratio < 4.5) found.push(ratio.toFixed(2) + " to 1: " + text.slice(0, 40) + " (" + node.nodeName + "." + (node.getAttribute("class") || "") + ")");
			}
		}
	}
	return [...new Set(found)];
})()`

// Texts can be read in both colour schemes, and the schemes differ.
func TestContrast(t *testing.T) {
	s := newStage(t, webui.Config{Title: "production", Access: permissive, Refusals: new(webui.Refusals)})
	s.drama()
	for _, scheme := range []string{"light", "dark"} {
		s.colors(scheme)
		for _, where := range everyPage {
			s.opens(where)
			_, err := evaluate[any](s, `document.querySelectorAll("details").forEach((d) => { d.open = true; })`)
			s.ok(err)
			faint, err := evaluate[[]string](s, unreadable)
			s.ok(err)
			for _, text := range faint {
				t.Errorf("%s, %s: %s", scheme, where, text)
			}
		}
		dark, err := evaluate[bool](s, `getComputedStyle(document.body).backgroundColor.match(/\d+/g).every((c) => c < 64)`)
		s.ok(err)
		if dark != (scheme == "dark") {
			t.Errorf("%s: the page is dark: %v", scheme, dark)
		}
	}
}
