#!/bin/sh
# corpus.sh OUTDIR [MEGABYTES] - makes text to train on from Debian packages: one folder for each kind of text,
# with at most MEGABYTES of each (12), taking files in the order of their names. The same packages give the same
# bytes. Their versions are written to OUTDIR/.packages, a hidden file that is not part of the text.
#
#   english    an encyclopedia of political thought   anarchism       HTML, as text
#   perl-doc   the manual pages of Perl               perl-doc        POD
#   c          the core of Linux                      linux-source    C
#   rst        the documentation of Linux             linux-source    reStructuredText
#   python     Python's standard library              libpython3-stdlib
#
# Packages are downloaded (about 160 MB, most of it Linux) and unpacked, not installed.
set -eu
LC_ALL=C
export LC_ALL

if [ $# -lt 1 ] || [ $# -gt 2 ] || [ "$1" = --help ]; then
    echo "usage: $0 OUTDIR [MEGABYTES]   (the most for each kind of text; default 12)" >&2
    exit 2
fi
megabytes=${2:-12}
case $megabytes in
'' | *[!0-9]* | 0*)
    echo "$0: '$megabytes' is not a number of megabytes" >&2
    exit 2
    ;;
esac
for tool in apt-get apt-cache dpkg-deb perl xz; do
    command -v $tool >/dev/null || {
        echo "$0: $tool is missing; this script needs Debian's tools" >&2
        exit 1
    }
done
mkdir -p "$1"
out=$(cd "$1" && pwd)
if [ -n "$(ls -A "$out")" ]; then
    echo "$0: $1 is not empty; name a new folder" >&2
    exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# The package that has the content: the one that the named package depends on.
resolve() { # name, pattern of the package with the content
    apt-cache depends "$1" | sed -n 's/^ *Depends: //p' | grep -E "$2" | head -n 1
}

download() { # package; prints its path
    echo "downloading $1" >&2
    mkdir "$work/$1"
    (cd "$work/$1" && apt-get -o APT::Sandbox::User=root -qq download "$1")
    basename "$work/$1/"*.deb >>"$out/.packages"
    echo "$work/$1/"*.deb
}

# Reads names of files in $work/from, one on each line. Cleans those that are plain text and writes them to the
# folder of the kind until it has enough bytes.
write_kind() { # kind, html or plain
    mkdir "$out/$1"
    (cd "$work/from" && sort | perl -e '
        my ($folder, $form, $limit) = @ARGV;
        my %named = (amp => "&", lt => "<", gt => ">", quot => "\"", apos => "\x27", nbsp => " ",
                     mdash => "--", ndash => "-", hellip => "...", lsquo => "\x27", rsquo => "\x27",
                     ldquo => "\"", rdquo => "\"");
        sub character { # an entity; UTF-8, since the text is bytes
            my ($name) = @_;
            return exists $named{$name} ? $named{$name} : "&$name;" if $name !~ /^#(x?)([0-9a-f]+)$/i;
            my $code = $1 ? hex $2 : $2;
            return " " if $code == 160 || $code < 32 || $code > 0x10ffff || ($code >> 11) == 27;
            my $text = chr $code;
            utf8::encode($text);
            return $text;
        }
        sub from_html {
            my ($text) = @_;
            $text =~ s/\r//g;
            $text =~ s/<!--.*?-->//gs;
            $text =~ s/<(head|script|style)\b.*?<\/\1\s*>//gsi;
            $text =~ s/<pre\b[^>]*>(.*?)<\/pre\s*>/"<p>" . join("<br>", split(\/\n\/, $1)) . "<p>"/gesi;
            $text =~ s/\s+/ /g;
            $text =~ s/<li\b[^>]*>/\n- /gi;
            $text =~ s/<\/?(p|div|h[1-6]|ul|ol|dl|blockquote|table|hr|center)\b[^>]*>/\n\n/gi;
            $text =~ s/<(br|tr|dt|dd)\b[^>]*>/\n/gi;
            $text =~ s/<[^>]*>//g;
            $text =~ s/&(#?\w+);?/character($1)/ge;
            $text =~ s/\n +/\n/g;
            return $text;
        }
        my ($n, $bytes, $left_out) = (0, 0, 0);
        while (my $name = <STDIN>) {
            chomp $name;
            open(my $file, "<:raw", $name) or die "$name: $!\n";
            my $text = do { local $/; <$file> };
            $text = "" if !defined $text;
            $text = from_html($text) if $form eq "html";
            $text =~ s/\r\n?/\n/g;
            $text =~ s/[ \t]+$//gm;
            $text =~ s/\n{3,}/\n\n/g;
            $text =~ s/\A\n+//;
            $text =~ s/\n*\z/\n/;
            my $copy = $text;
            if ($text =~ /[\x00-\x08\x0e-\x1f\x7f]/ || !utf8::decode($copy) || length $text < 500) {
                $left_out++;
                next;
            }
            last if $bytes + length $text > $limit;
            (my $flat = $name) =~ s/\//-/g;
            $flat =~ s/\.html?$/.txt/;
            open(my $result, ">:raw", "$folder/$flat") or die "$folder/$flat: $!\n";
            print $result $text;
            close($result) or die "$folder/$flat: $!\n";
            $bytes += length $text;
            $n++;
        }
        my $kind = (split(/\//, $folder))[-1];
        printf STDERR "  %-10s %5d files %11d bytes, %d left out\n", $kind, $n, $bytes, $left_out;
        exit($n ? 0 : 1);
    ' "$out/$1" "$2" "${megabytes}000000")
    rm -rf "$work/from"
}

unpack() { # package file, folder within it
    rm -rf "$work/from" "$work/package"
    dpkg-deb -x "$1" "$work/package"
    mv "$work/package/$2" "$work/from"
}

names() { (cd "$work/from" && find . -type f "$@" | sed 's/^\.\///'); }

stdlib=$(resolve libpython3-stdlib '^libpython3\.[0-9]+-stdlib$')
linux=$(resolve linux-source '^linux-source-')

package=$(download anarchism)
unpack "$package" usr/share/doc/anarchism/html
names -name '*.html' | write_kind english html

package=$(download perl-doc)
unpack "$package" usr/share/perl
names -name '*.pod' ! -name perltoc.pod ! -name perluniprops.pod | write_kind perl-doc plain

package=$(download "$stdlib")
unpack "$package" usr/lib
names -name '*.py' ! -path '*/encodings/*' ! -path '*/pydoc_data/*' | write_kind python plain

package=$(download "$linux")
echo "unpacking $linux" >&2
tree() { # folder to unpack to, patterns
    mkdir "$work/from"
    dpkg-deb --fsys-tarfile "$package" | tar -xO "./usr/src/$linux.tar.xz" |
        tar -xJ -C "$work/from" --strip-components=1 --wildcards "$@"
}
tree "$linux/block/*.c" "$linux/init/*.c" "$linux/ipc/*.c" "$linux/kernel/*.c" "$linux/mm/*.c"
names -name '*.c' | write_kind c plain
tree "$linux/Documentation/*.rst" --exclude="$linux/Documentation/translations"
names -name '*.rst' | write_kind rst plain

echo "$out: $(find "$out" -type f ! -name .packages | wc -l) files," \
    "$(find "$out" -type f ! -name .packages -exec cat {} + | wc -c) bytes" >&2
