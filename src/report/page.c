/* page.c - the frame of a report. */
#include "report/page.h"

#include <locale.h>
#include <math.h>
#include <string.h>

#include "base/utf8.h"

dsmoe_status page_write(const char *folder, const char *name, partial_file_put_fn *put,
                        const void *context, dsmoe_error *error)
{
    locale_t plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (!plain) return status_fail(error, DSMOE_ERROR_MEMORY, "%s/%s: out of memory", folder, name);
    locale_t before = uselocale(plain);
    dsmoe_status status = partial_file_write_text(folder, name, put, context, error);
    uselocale(before);
    freelocale(plain);
    return status;
}

/* ---- text ----------------------------------------------------------------------------------- */

/* A byte of no character, or an invisible character other than a line end or a tab, becomes U+FFFD. */
static void put_character(FILE *html, const char *bytes, size_t size, uint32_t code)
{
    bool blank = code == '\n' || code == '\t';
    bool seen = size > 0 && (blank || (code >= 0x20 && (code < 0x7f || code > 0x9f)));
    if (!seen)
        fputs("\xef\xbf\xbd", html);
    else if (code == '&')
        fputs("&amp;", html);
    else if (code == '<')
        fputs("&lt;", html);
    else if (code == '>')
        fputs("&gt;", html);
    else if (code == '"')
        fputs("&quot;", html);
    else if (code == '\'')
        fputs("&#39;", html);
    else
        fwrite(bytes, 1, size, html);
}

void page_text(FILE *html, const char *text) { page_text_cut(html, text, (size_t)-1); }

void page_text_cut(FILE *html, const char *text, size_t max_characters)
{
    size_t length = strlen(text), size;
    for (size_t at = 0, n = 0; at < length; at += size, n++) {
        uint32_t code = 0;
        if (n == max_characters) {
            fputs("…", html);
            return;
        }
        size = utf8_decode(text + at, length - at, &code);
        put_character(html, text + at, size, code);
        if (size == 0) size = 1;
    }
}

const char *page_shorten(const char *text, char *out, size_t size)
{
    size_t length = strlen(text);
    if (length >= size)
        for (length = size - 1; length > 0 && (text[length] & 0xc0) == 0x80;) length--;
    memcpy(out, text, length);
    out[length] = '\0';
    return out;
}

/* ---- the frame ------------------------------------------------------------------------------ */

void page_open(FILE *html, const char *title, int refresh)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
          "<meta name=\"referrer\" content=\"no-referrer\">\n"
          "<meta name=\"generator\" content=\"dsmoe " DSMOE_VERSION "\">\n",
          html);
    if (refresh > 0) fprintf(html, "<meta http-equiv=\"refresh\" content=\"%d\">\n", refresh);
    fputs("<title>", html);
    page_text(html, title);
    fprintf(html, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<main>\n", page_style);
}

void page_close(FILE *html, const char *more_script)
{
    fprintf(
        html,
        "<footer>Made by dsmoe %s.</footer>\n</main>\n<script>\n%s%s</script>\n</body>\n</html>\n",
        DSMOE_VERSION, page_script, more_script ? more_script : "");
}

void page_card_open(FILE *html, const char *title, const char *about)
{
    fprintf(html, "<section class=\"card\">\n<h2>%s</h2>\n", title);
    if (about) fprintf(html, "<p class=\"about\">%s</p>\n", about);
}

void page_card_close(FILE *html) { fputs("</section>\n", html); }

void page_cell_open(FILE *html, const char *column)
{
    fprintf(html, "<td data-name=\"%s\">", column);
}

void page_fact(FILE *html, const char *name, const char *value, const char *more)
{
    fprintf(html, "<div><dt>%s</dt><dd>%s<small>%s</small></dd></div>\n", name, value, more);
}

/* ---- colours -------------------------------------------------------------------------------- */

const char *page_tone(size_t index)
{
    static const char *const tones[PAGE_TONES] = {"t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7"};
    return tones[index % PAGE_TONES];
}

const char *page_depth(size_t index, size_t count)
{
    static const char *const depths[PAGE_DEPTHS] = {"d0", "d1", "d2", "d3", "d4",
                                                    "d5", "d6", "d7", "d8"};
    if (count < 2) return depths[PAGE_DEPTHS / 2];
    return depths[index * (PAGE_DEPTHS - 1) / (count - 1)];
}

int page_shade(double ratio)
{
    if (!(ratio >= 0)) return -1;
    if (ratio < 1e-6) return 0;
    double shade = rint(PAGE_SHADES_OF_TWO * log2(ratio)) + PAGE_SHADES / 2;
    return shade < 0 ? 0 : shade > PAGE_SHADES - 1 ? PAGE_SHADES - 1 : (int)shade;
}
