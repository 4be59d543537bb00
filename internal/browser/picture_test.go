package browser_test

import (
	"bytes"
	"image"
	"image/png"
)

const (
	// cell is the side of a cell of a picture, in pixels: about a line of text.
	cell = 20
	// faint is how much the mean of a colour may differ in a cell, of 255. A text that is
	// there or not makes a difference of 20 to 60.
	faint = 14
)

func (s *stage) decode(file []byte) image.Image {
	s.Helper()
	picture, err := png.Decode(bytes.NewReader(file))
	s.ok(err)
	return picture
}

// differs compares two pictures roughly, by the mean colours of their cells: fences, times
// and identities are others in each.
func (s *stage) differs(a, b image.Image) (cells, of int) {
	s.Helper()
	if a.Bounds() != b.Bounds() {
		s.Fatalf("pictures of %v and %v", a.Bounds(), b.Bounds())
	}
	for y := 0; y+cell <= a.Bounds().Dy(); y += cell {
		for x := 0; x+cell <= a.Bounds().Dx(); x += cell {
			of++
			of, in := mean(a, x, y), mean(b, x, y)
			for i := range of {
				if max(of[i]-in[i], in[i]-of[i]) > faint {
					cells++
					break
				}
			}
		}
	}
	return cells, of
}

// mean returns the mean colour of a cell, of 255.
func mean(picture image.Image, x, y int) (sum [3]int) {
	for dy := range cell {
		for dx := range cell {
			r, g, b, _ := picture.At(x+dx, y+dy).RGBA()
			sum[0], sum[1], sum[2] = sum[0]+int(r>>8), sum[1]+int(g>>8), sum[2]+int(b>>8)
		}
	}
	for i := range sum {
		sum[i] /= cell * cell
	}
	return sum
}
