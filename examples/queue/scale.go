package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"image/draw"
	_ "image/jpeg"
	"image/png"
	"os"
)

const (
	thumbnailSize = 96      // pixels, of the longer side
	maxPixels     = 1 << 26 // that a worker has the memory for
)

var errMemory = errors.New("out of memory")

// scale writes a thumbnail of a picture. Each of its pixels is the mean of those that
// it stands for.
func scale(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	cfg, _, err := image.DecodeConfig(bytes.NewReader(text))
	if err != nil {
		return err
	}
	if cfg.Width*cfg.Height > maxPixels {
		return errMemory
	}
	decoded, _, err := image.Decode(bytes.NewReader(text))
	if err != nil {
		return err
	}
	src := image.NewRGBA(image.Rect(0, 0, decoded.Bounds().Dx(), decoded.Bounds().Dy()))
	draw.Draw(src, src.Rect, decoded, decoded.Bounds().Min, draw.Src)
	w, h := src.Rect.Dx(), src.Rect.Dy()
	longer := max(w, h, thumbnailSize) // a small picture stays as it is
	dst := image.NewRGBA(image.Rect(0, 0, max(w*thumbnailSize/longer, 1), max(h*thumbnailSize/longer, 1)))
	for y := range dst.Rect.Dy() {
		for x := range dst.Rect.Dx() {
			dst.SetRGBA(x, y, mean(src, x*w/dst.Rect.Dx(), y*h/dst.Rect.Dy(), (x+1)*w/dst.Rect.Dx(), (y+1)*h/dst.Rect.Dy()))
		}
	}
	var out bytes.Buffer
	_ = png.Encode(&out, dst) // a Buffer takes everything
	return os.WriteFile(to, out.Bytes(), 0o644)
}

// mean returns the mean color of a box.
func mean(m *image.RGBA, x0, y0, x1, y1 int) color.RGBA {
	var r, g, b, a, n int
	for y := y0; y < y1; y++ {
		for x := x0; x < x1; x++ {
			c := m.RGBAAt(x, y)
			r, g, b, a, n = r+int(c.R), g+int(c.G), b+int(c.B), a+int(c.A), n+1
		}
	}
	return color.RGBA{uint8(r / n), uint8(g / n), uint8(b / n), uint8(a / n)}
}

// poison returns a small PNG file that claims to have 10,000,000,000 pixels.
func poison() []byte {
	var out bytes.Buffer
	_ = png.Encode(&out, image.NewGray(image.Rect(0, 0, 1, 1)))
	b := out.Bytes()
	binary.BigEndian.PutUint32(b[16:], 100_000) // width, after signature, length and type
	binary.BigEndian.PutUint32(b[20:], 100_000)
	binary.BigEndian.PutUint32(b[29:], crc32.ChecksumIEEE(b[12:29]))
	return b
}
