package main_test

import (
	"bytes"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/examples/demoproc"
	"github.com/etcdclaims/claims/internal/testetcd"
)

func TestMain(m *testing.M) { testetcd.Main(m) }

const pictures = 40

func TestQueue(t *testing.T) {
	if testing.Short() {
		t.Skip("runs twelve processes, which wait for leases to end")
	}
	if err := demoproc.Signals(); err != nil {
		t.Skip(err)
	}
	bin := testetcd.Program(t, "queue")
	t.Run("OK", func(t *testing.T) {
		t.Parallel()
		server, dir, out := testetcd.Shared(t), album(t, pictures), t.TempDir()
		args := []string{"-dir", dir, "-out", out, "-endpoints", strings.Join(server.Endpoints(), ",")}
		if !testetcd.Long() {
			args = append(args, "-ttl", "3s")
		}
		text, err := command(t, bin, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		for _, want := range []string{
			`producer-1 enqueued \d+ of 41 pictures`,
			`producer-2 enqueued \d+ of 41 pictures`,
			`worker-1 is killed`,
			`worker-2 is killed`,
			`worker-3 is frozen`,
			`worker-\d opens poison.png and is killed by it: attempt 1`,
			`worker-\d opens poison.png and is killed by it: attempt 2`,
			`worker-3 is resumed`,
			`\n\S+ 42 of 42 items are done\n`,
			`dead letter broken.png: attempt 1 by worker-\d: failed \S+`,
			`dead letter poison.png: attempt 1 by worker-\d: lost`,
			`dead letter poison.png: attempt 2 by worker-\d: lost`,
			`worker-3 cannot publish \S+: .*expired`,
			`41 pictures, 40 thumbnails, 2 dead letters, [1-9]\d* items in a second attempt, [1-9]\d* late workers refused`,
			`the contact sheet is \S+index.html`,
		} {
			if !regexp.MustCompile(want).Match(text) {
				t.Errorf("it does not say %q", want)
			}
		}
		if bytes.ContainsAny(text, "\r\x1b") {
			t.Error("it moves the cursor, though it writes to no terminal")
		}
		made, err := filepath.Glob(filepath.Join(out, "thumbnails-*"))
		if err != nil || len(made) != 1 {
			t.Fatalf("it made %q: %v", made, err)
		}
		checkThumbnails(t, made[0])
		checkSheet(t, made[0], dir)
		if t.Failed() {
			t.Logf("%s", text)
		}
		resp, err := server.Client(t).Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range resp.Kvs {
			t.Errorf("left over: %s", kv.Key)
		}
	})
	t.Run("fails", func(t *testing.T) {
		t.Parallel()
		f := func(want string, args ...string) {
			t.Helper()
			text, err := command(t, bin, args...).CombinedOutput()
			if err == nil || !bytes.Contains(text, []byte(want)) {
				t.Errorf("%q ended with %v and printed:\n%s\nwant it to say %q", args, err, text, want)
			}
		}
		f("want at least 20", "-dir", album(t, 3), "-out", t.TempDir())
		f("not done after 2s", "-dir", album(t, pictures), "-out", t.TempDir(), "-timeout", "2s")
		f("unexpected argument", "fast")
	})
}

// checkThumbnails checks that there is one thumbnail for each good picture, and none that a
// killed or frozen worker made in vain.
func checkThumbnails(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.[0-9]*.png"))
	if err != nil || len(files) != pictures {
		t.Errorf("%d thumbnails, want %d: %v", len(files), pictures, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m, err := png.Decode(bytes.NewReader(text))
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if got, want := m.Bounds().Size(), image.Pt(96, 48); got != want {
			t.Errorf("%s: size %v, want %v", file, got, want)
		}
		if r, g, b, _ := m.At(10, 10).RGBA(); r>>8 < 195 || r>>8 > 205 || g>>8 > 30 || b>>8 > 30 {
			t.Errorf("%s: color %d %d %d, want red", file, r>>8, g>>8, b>>8)
		}
	}
}

var shown = regexp.MustCompile(`<a href="file://([^"]+)"><img src="([^"]+)" alt="([^"]+)"></a>`)

// checkSheet checks that the contact sheet in dir shows each good picture of the album
// once, and that its thumbnails and links exist.
func checkSheet(t *testing.T, dir, album string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	times, files := map[string]int{}, map[string]bool{}
	for _, match := range shown.FindAllStringSubmatch(string(page), -1) {
		link, file, id := match[1], match[2], match[3]
		times[id]++
		files[file] = true
		if link != filepath.ToSlash(filepath.Join(album, id)) {
			t.Errorf("%s leads to %s", id, link)
		}
		for _, path := range []string{link, filepath.Join(dir, file)} {
			if _, err := os.Stat(path); err != nil {
				t.Errorf("the sheet shows %s: %v", id, err)
			}
		}
	}
	originals, err := os.ReadDir(album)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range originals {
		want := 1
		if f.Name() == "broken.png" || f.Name() == "readme.txt" {
			want = 0
		}
		if times[f.Name()] != want {
			t.Errorf("the sheet shows %s %d times, want %d", f.Name(), times[f.Name()], want)
		}
	}
	if len(times) != pictures || len(files) != pictures {
		t.Errorf("the sheet shows %d pictures by %d files, want %d", len(times), len(files), pictures)
	}
	if !bytes.Contains(page, []byte("<li>broken.png")) || !bytes.Contains(page, []byte("<li>poison.png")) {
		t.Errorf("the sheet lacks a dead letter:\n%s", page)
	}
}

// album makes a directory with n red pictures, one that cannot be decoded, and a file
// that is no picture.
func album(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m := image.NewRGBA(image.Rect(0, 0, 200, 100))
	for i := range m.Pix {
		m.Pix[i] = []uint8{200, 0, 0, 255}[i%4]
	}
	m.SetRGBA(0, 0, color.RGBA{A: 255})
	for i := range n {
		var out bytes.Buffer
		name, err := strconv.Itoa(i)+".PNG", png.Encode(&out, m)
		if i%2 == 0 {
			out.Reset()
			name, err = strconv.Itoa(i)+".jpeg", jpeg.Encode(&out, m, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		write(name, out.Bytes())
	}
	write("broken.png", []byte("\x89PNG\r\n\x1a\nbroken, and not by chance"))
	write("readme.txt", []byte("no picture\n"))
	return dir
}

func command(t *testing.T, bin string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), bin, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir()) // where its etcd lies
	cmd.WaitDelay = 10 * time.Second
	return cmd
}
