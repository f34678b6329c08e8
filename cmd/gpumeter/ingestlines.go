package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/gpumeter/gpumeter/schema"
)

// inputLine is one line of the input without the end of line and the white
// space around it.
type inputLine struct {
	number  int // from 1
	raw     []byte
	tooLong bool  // longer than allowed; raw is empty
	bytes   int64 // what the line took up in the input
	err     error // the input could not be read any further; the last line
}

// lineReader cuts an input into lines. However long a line is, no more of it
// than the longest allowed one is kept in memory.
type lineReader struct {
	in     *bufio.Reader
	number int
	most   int
}

func newLineReader(in io.Reader) *lineReader {
	return &lineReader{in: bufio.NewReaderSize(in, 64<<10), most: schema.MaxMessageBytes}
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// next returns the next line that is not blank, and io.EOF after the last one.
func (l *lineReader) next() (inputLine, error) {
	for {
		line, err := l.read()
		if err != nil {
			return line, err
		}
		if line.tooLong || len(line.raw) > 0 {
			return line, nil
		}
	}
}

func (l *lineReader) read() (inputLine, error) {
	l.number++
	line := inputLine{number: l.number}
	for {
		chunk, err := l.in.ReadSlice('\n')
		line.bytes += int64(len(chunk))
		if !line.tooLong {
			line.raw = append(line.raw, chunk...)
			// The end of line and a byte order mark are not part of the event.
			if len(line.raw) > l.most+len("\r\n")+len(byteOrderMark) {
				line.raw, line.tooLong = nil, true
			}
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && line.bytes == 0:
			return line, io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			return line, err
		}
		if line.number == 1 {
			line.raw = bytes.TrimPrefix(line.raw, byteOrderMark)
		}
		line.raw = bytes.Trim(line.raw, " \t\r\n")
		if len(line.raw) > l.most {
			line.raw, line.tooLong = nil, true
		}
		return line, nil
	}
}

// readLines reads in the background, because a read from a terminal or a pipe
// cannot be interrupted. The channel holds few lines, so that a fast file does
// not fill memory while the server is slow.
func readLines(ctx context.Context, in io.Reader) <-chan inputLine {
	lines := make(chan inputLine, 8)
	go func() {
		defer close(lines)
		reader := newLineReader(in)
		for {
			line, err := reader.next()
			if errors.Is(err, io.EOF) {
				return
			}
			line.err = err
			select {
			case lines <- line:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return lines
}
