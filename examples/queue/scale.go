package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	_ "image/jpeg"
	"image/png"
	"os"

	"golang.org/x/image/draw"
)

const (
	thumbnailSize = 96      // pixels, of the longer side
	maxPixels     = 1 << 26 // that a worker has the memory for
)

var errMemory = errors.New("out of memory")

// scale writes a thumbnail of a picture.
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
	src, _, err := image.Decode(bytes.NewReader(text))
	if err != nil {
		return err
	}
	w, h := cfg.Width, cfg.Height
	longer := max(w, h, thumbnailSize) // a small picture stays as it is
	dst := image.NewRGBA(image.Rect(0, 0, max(w*thumbnailSize/longer, 1), max(h*thumbnailSize/longer, 1)))
	draw.CatmullRom.Scale(dst, dst.Rect, src, src.Bounds(), draw.Src, nil)
	var out bytes.Buffer
	_ = png.Encode(&out, dst) // a Buffer takes everything
	return os.WriteFile(to, out.Bytes(), 0o644)
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
