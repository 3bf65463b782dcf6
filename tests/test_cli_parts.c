/* test_cli_parts.c - the parts that commands share: the table of options, characters and messages, one
 * line of a JSON Lines file, ids as people write them, and the printer that holds back text that must not
 * be shown yet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/ids.h"
#include "cli/json_line.h"
#include "cli/logit_bias.h"
#include "cli/options.h"
#include "cli/stream.h"

/* ---- capturing output ---------------------------------------------------------------------- */

static int silence(FILE *file)
{
    fflush(file);
    int kept = dup(fileno(file));
    assert_non_null(freopen("/dev/null", "w", file));
    return kept;
}

static void speak(FILE *file, int kept)
{
    fflush(file);
    dup2(kept, fileno(file));
    close(kept);
}

/* Captures what is written to a stream between begin and end. */
typedef struct captured {
    FILE *file, *copy;
    int kept;
    char text[512];
} captured;

static captured capture_begin(FILE *file)
{
    captured c = {.file = file, .copy = tmpfile(), .kept = dup(fileno(file))};
    assert_non_null(c.copy);
    fflush(file);
    assert_true(dup2(fileno(c.copy), fileno(file)) >= 0);
    return c;
}

static void capture_end(captured *c)
{
    speak(c->file, c->kept);
    rewind(c->copy);
    c->text[fread(c->text, 1, sizeof c->text - 1, c->copy)] = '\0';
    fclose(c->copy);
}

/* ---- options ------------------------------------------------------------------------------- */

typedef struct parsed {
    bool flag;
    const char *text;
    int64_t whole;
    double number;
    const char *list_at[2], *words_at[2];
    option_words list, words;
    option_row rows[5];
    int code;
} parsed;

/* Parses the words after the command's name, ended by NULL. */
static void parse_given(parsed *p, const char *const *arguments, bool *given)
{
    char *argv[16] = {"test"};
    int argc = 1;
    for (; arguments[argc - 1]; argc++) argv[argc] = (char *)arguments[argc - 1];
    *p = (parsed){.whole = 7};
    p->list = (option_words){p->list_at, 2, 0};
    p->words = (option_words){p->words_at, 2, 0};
    const option_row rows[] = {
        {"--flag", NULL, OPTION_FLAG, &p->flag, 0, 0},
        {"--text", "-p", OPTION_TEXT, &p->text, 0, 0},
        {"--whole", "-n", OPTION_INTEGER, &p->whole, -1, INFINITY},
        {"--number", NULL, OPTION_NUMBER, &p->number, 0, 1},
        {"--list", NULL, OPTION_LIST, &p->list, 0, 0},
    };
    memcpy(p->rows, rows, sizeof rows);
    int kept_out = silence(stdout), kept_err = silence(stderr);
    p->code = options_parse_given("test", "help\n", rows, 5, argc, argv, &p->words, given);
    speak(stderr, kept_err);
    speak(stdout, kept_out);
}

static void parse(parsed *p, const char *const *arguments) { parse_given(p, arguments, NULL); }

static void test_options_take_every_form(void **state)
{
    (void)state;
    parsed p;
    parse(&p, (const char *[]){"--flag", "-p", "-x", "--whole=-1", "--number", "2.5e-1", "a",
                               "--list", "one", "--list=", "--", "--flag", NULL});
    assert_int_equal(p.code, -1);
    assert_true(p.flag);
    assert_string_equal(p.text, "-x");
    assert_int_equal(p.whole, -1);
    assert_true(p.number == 0.25);
    assert_int_equal(p.list.count, 2);
    assert_string_equal(p.list_at[0], "one");
    assert_string_equal(p.list_at[1], "");
    assert_int_equal(p.words.count, 2);
    assert_string_equal(p.words_at[0], "a");
    assert_string_equal(p.words_at[1], "--flag");

    parse(&p, (const char *[]){"-", "-n", "9223372036854775807", "-n", "3", NULL});
    assert_int_equal(p.code, -1);
    assert_int_equal(p.whole, 3); /* the last one counts */
    assert_string_equal(p.words_at[0], "-");

    parse(&p, (const char *[]){"-n-1", "-p=x", NULL}); /* the value may follow directly */
    assert_int_equal(p.code, -1);
    assert_int_equal(p.whole, -1);
    assert_string_equal(p.text, "=x");

    parse(&p, (const char *[]){"-n", "3", "-h", "--nonsense", NULL});
    assert_int_equal(p.code, CLI_OK);
}

/* Known names are accepted in upper or lower case; free text is not changed. */
static void test_options_take_names_in_any_case(void **state)
{
    (void)state;
    char name[] = "--type=Q4_K_M", text[] = "--text=Q4_\xc3\x84";
    const char *type = NULL, *kept = NULL;
    const option_row rows[] = {
        {"--type", NULL, OPTION_NAME, &type, 0, 0},
        {"--text", NULL, OPTION_TEXT, &kept, 0, 0},
    };
    char *argv[] = {"test", name, text};
    assert_int_equal(options_parse("test", "help\n", rows, 2, 3, argv, NULL), -1);
    assert_string_equal(type, "q4_k_m");
    assert_string_equal(kept, "Q4_\xc3\x84");
}

static void test_options_refuse_nonsense(void **state)
{
    (void)state;
    static const char *const wrong[][5] = {
        {"--nonsense"},
        {"--tex", "a"},
        {"-f"},
        {"--text"},
        {"--flag=1"},
        {"--help=1"},
        {"-x3"},
        {"-n3x"},
        {"--whole", "-2"},
        {"--whole", "1.5"},
        {"--whole", ""},
        {"--whole", "9223372036854775808"},
        {"--number", "nan"},
        {"--number", "inf"},
        {"--number", "0x1"},
        {"--number", " 1"},
        {"--number", "1.1"},
        {"--number", "1e999"},
        {"--number", "-0.1"},
        {"--number", "e"},
        {"a", "b", "c"},
        {"a", ""},
        {"--list=1", "--list=2", "--list=3"},
    };
    parsed p;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        parse(&p, wrong[i]);
        if (p.code != CLI_USAGE) fail_msg("%s %s: %d", wrong[i][0], wrong[i][1], p.code);
    }
}

static void test_options_know_each_other(void **state)
{
    (void)state;
    static const struct {
        const char *words[5], *message; /* NULL: accepted */
    } cases[] = {
        {{"--flag", "--text", "x"}, NULL},
        {{"--text", "x"}, "--text has no effect without --flag"},
        {{"--number", "0.5"}, NULL},
        {{"--number", "0.5", "-n", "0"}, "--number has no effect: --whole is 0"},
        {{"--number", "0", "-n", "0"}, NULL}, /* both switched off */
        {{"--list", "a"}, NULL},
        {{"--list", "a", "--flag"}, "--list and --flag cannot be used together"},
    };
    static const option_rule rules[] = {{"--text", OPTION_NEEDS, "--flag"},
                                        {"--number", OPTION_NEEDS, "--whole"},
                                        {"--list", OPTION_EXCLUDES, "--flag"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        parsed p;
        bool given[5];
        parse_given(&p, cases[i].words, given);
        assert_int_equal(p.code, -1);
        captured c = capture_begin(stderr);
        int code = options_check("test", p.rows, 5, given, rules, 3);
        capture_end(&c);
        assert_int_equal(code, cases[i].message ? CLI_USAGE : -1);
        if (cases[i].message && !strstr(c.text, cases[i].message))
            fail_msg("'%s' does not say '%s'", c.text, cases[i].message);
    }
    /* Values from elsewhere, such as settings, are told apart from given options. */
    parsed p;
    bool given[5];
    parse_given(&p, (const char *[]){"--list", "a", NULL}, given);
    p.flag = true;
    captured c = capture_begin(stderr);
    assert_int_equal(options_check("test", p.rows, 5, given, rules, 3), CLI_USAGE);
    capture_end(&c);
    assert_non_null(strstr(c.text, "and the settings already have the second"));
}

static void test_options_switch_off(void **state)
{
    (void)state;
    bool flag = true;
    const option_row rows[] = {{"--flag", NULL, OPTION_FLAG, &flag, 0, 0},
                               {"--no-flag", NULL, OPTION_OFF, &flag, 0, 0}};
    char *off[] = {"test", "--no-flag"}, *both[] = {"test", "--no-flag", "--flag"};
    assert_int_equal(options_parse("test", "", rows, 2, 2, off, NULL), -1);
    assert_false(flag);
    assert_int_equal(options_parse("test", "", rows, 2, 3, both, NULL), -1);
    assert_true(flag); /* the last one counts */
}

static void test_options_in_a_field(void **state)
{
    (void)state;
    char field[4] = "zzz";
    const option_row row = {"--field", NULL, OPTION_FIELD, field, 0, sizeof field};
    char *good[] = {"test", "--field", "ab"}, *wrong[] = {"test", "--field=abcd"};
    assert_int_equal(options_parse("test", "", &row, 1, 3, good, NULL), -1);
    assert_memory_equal(field, "ab\0\0", 4);
    captured c = capture_begin(stderr);
    int code = options_parse("test", "", &row, 1, 2, wrong, NULL);
    capture_end(&c);
    assert_int_equal(code, CLI_USAGE);
    assert_non_null(strstr(c.text, "--field has more than 3 bytes"));
}

static void test_logit_bias(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int32_t id;
        double bias;
    } good[] = {
        {"42:1.5", 42, 1.5},
        {"42:-1.5", 42, -1.5},
        {"42:+1.5", 42, 1.5},
        {"42+1.5", 42, 1.5},
        {"42-1.5", 42, -1.5},
        {"0:0", 0, 0},
        {"7-100", 7, -100},
        {"7-1e2", 7, -100},
        {"7-inf", 7, -INFINITY},
        {"7:-inf", 7, -INFINITY},
        {"2147483647:1e-3", INT32_MAX, 1e-3},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        dsmoe_logit_bias bias;
        if (!logit_bias_parse(good[i].text, &bias)) fail_msg("%s is refused", good[i].text);
        if (bias.id != good[i].id || bias.bias != good[i].bias)
            fail_msg("%s is %d:%g", good[i].text, (int)bias.id, bias.bias);
    }
    static const char *const wrong[] = {
        "",       "42",     "42:",    "42+",   ":1",     "-1:1",         "a:1",
        "42:x",   "42: 1",  " 42:1",  "42 :1", "42:1x",  "2147483648:1", "99999999999999999999:1",
        "42:inf", "42+inf", "42:nan", "42--1", "42:--1", "42:+-1",       "42++1",
        "42:0x1", "42=1",   "42,1",   "42:-",  "42:1:2", "42:-infinity",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dsmoe_logit_bias bias;
        if (logit_bias_parse(wrong[i], &bias)) fail_msg("'%s' is taken", wrong[i]);
    }
}

/* An empty file name usually comes from an unset shell variable. */
static void test_options_refuse_empty_paths(void **state)
{
    (void)state;
    char field[8] = "before";
    const char *path = NULL, *list_at[2];
    option_words list = {list_at, 2, 0};
    const option_row rows[] = {{"--path", NULL, OPTION_PATH, &path, 0, 0},
                               {"--field", NULL, OPTION_PATH_FIELD, field, 0, sizeof field},
                               {"--list", NULL, OPTION_PATH_LIST, &list, 0, 0}};
    char *good[] = {"test", "--path", "a", "--field=b", "--list", "c"};
    assert_int_equal(options_parse("test", "", rows, 3, 6, good, NULL), -1);
    assert_string_equal(path, "a");
    assert_string_equal(field, "b");
    assert_int_equal(list.count, 1);
    for (int i = 0; i < 3; i++) {
        char *wrong[] = {"test", (char *)rows[i].name, ""};
        captured c = capture_begin(stderr);
        int code = options_parse("test", "", rows, 3, 3, wrong, NULL);
        capture_end(&c);
        assert_int_equal(code, CLI_USAGE);
        assert_non_null(strstr(c.text, rows[i].name));
        assert_non_null(strstr(c.text, "is empty"));
    }
}

static void test_options_of_time(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double seconds; /* NAN: refused */
    } cases[] = {
        {"90", 90},     {"1.5", 1.5},  {"45s", 45},         {"30m", 1800}, {"2h30m", 9000},
        {"1.5h", 5400}, {"1d", 86400}, {"1d2h3m4s", 93784}, {"", NAN},     {"h", NAN},
        {"2x", NAN},    {"-1", NAN},   {"30m2h", NAN},      {"1h1h", NAN}, {"2h30", NAN},
        {"1e3", NAN},   {"1..5", NAN}, {"0", NAN},          {"inf", NAN},  {"99999999d", NAN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double seconds = -1;
        const option_row row = {"--time", NULL, OPTION_DURATION, &seconds, 0, 1e9};
        char *argv[] = {"test", "--time", (char *)cases[i].text};
        captured c = capture_begin(stderr);
        int code = options_parse("test", "", &row, 1, 3, argv, NULL);
        capture_end(&c);
        if (isnan(cases[i].seconds) ? code != CLI_USAGE || !strstr(c.text, "2h30m")
                                    : code != -1 || seconds != cases[i].seconds)
            fail_msg("'%s': %d, %g: %s", cases[i].text, code, seconds, c.text);
    }
}

/* ---- characters and messages --------------------------------------------------------------- */

static void test_characters(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        uint32_t code;
    } cases[] = {{"a", 1, 'a'},
                 {"\x7f", 1, 0x7f},
                 {"\xc2\x80", 2, 0x80},
                 {"\xc3\xa9x", 2, 0xe9},
                 {"\xe0\xa0\x80", 3, 0x800},
                 {"\xe2\x82\xac", 3, 0x20ac},
                 {"\xef\xbf\xbf", 3, 0xffff},
                 {"\xf0\x9f\x98\x80", 4, 0x1f600},
                 {"\xf4\x8f\xbf\xbf", 4, 0x10ffff},
                 {"\x80", 0, 0},
                 {"\xc1\x81", 0, 0},
                 {"\xc3", 0, 0},
                 {"\xe2\x82", 0, 0},
                 {"\xe0\x9f\xbf", 0, 0},
                 {"\xed\xa0\x80", 0, 0},
                 {"\xf0\x8f\xbf\xbf", 0, 0},
                 {"\xf4\x90\x80\x80", 0, 0},
                 {"\xf8\x88\x80\x80", 0, 0},
                 {"\xff", 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t code = 0;
        size_t length = strlen(cases[i].bytes);
        char *exact = malloc(length); /* reading a byte beyond is an error */
        memcpy(exact, cases[i].bytes, length);
        assert_int_equal(utf8_decode(exact, length, &code), cases[i].size);
        if (cases[i].size) assert_int_equal(code, cases[i].code);
        free(exact);
    }
}

/* Whatever a name contains, the message is one line without control characters. */
static void test_messages_are_one_line(void **state)
{
    (void)state;
    captured c = capture_begin(stderr);
    int code = cli_failure("test", "%s: no", "a\nb\033[31m\xff\xc2\x9b \xc3\xa9");
    capture_end(&c);
    assert_int_equal(code, CLI_FAILURE);
    assert_string_equal(c.text, "dsmoe test: a?b?[31m?? \xc3\xa9: no\n");
}

/* A model's text must not control the terminal; a file gets the text unchanged. */
static void test_text_on_a_terminal(void **state)
{
    (void)state;
    static const char text[] = "a\033]0;x\007\tb\xc2\x9b\xc3\xa9\xff";
    static const char shown[] = "a\xef\xbf\xbd]0;x\xef\xbf\xbd\tb\xef\xbf\xbd\xc3\xa9\xff";
    captured c = capture_begin(stdout);
    bool written = cli_print_text(text, strlen(text));
    capture_end(&c);
    assert_true(written);
    assert_string_equal(c.text, text);

    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) skip();
    int terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
    if (terminal < 0) skip();
    fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    dup2(terminal, STDOUT_FILENO);
    close(terminal);
    written = cli_print_text(text, strlen(text));
    fflush(stdout);
    char seen[64] = "";
    ssize_t n = read(master, seen, sizeof seen - 1);
    speak(stdout, kept);
    close(master);
    assert_true(written);
    assert_int_equal(n, sizeof shown - 1);
    assert_memory_equal(seen, shown, sizeof shown - 1);
}

/* ---- JSON lines ---------------------------------------------------------------------------- */

static void test_json_line_string(void **state)
{
    (void)state;
    static const struct {
        const char *line, *text;
        size_t length;
    } cases[] = {
        {"{\"text\":\"\"}", "", 0},
        {" { \"text\" : \"a\" } \r", "a", 1},
        {"\xef\xbb\xbf{\"text\":\"a\"}", "a", 1},
        {"{\"text\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", "\"\\/\b\f\n\r\t", 8},
        {"{\"text\":\"\\u0041\\u00e9\\u20AC\\ud83d\\uDE00\"}",
         "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 10},
        {"{\"text\":\"a\\u0000b\"}", "a\0b", 3},
        {"{\"\\u0074ext\":\"x\"}", "x", 1},
        {"{\"a\":[1,-0.5e+3,[],{},{\"b\":[true,false,null,\"]\"]}],\"text\":\"x\",\"z\":\"\"}", "x",
         1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dsmoe_error error;
        size_t length;
        char *text =
            json_line_string(cases[i].line, strlen(cases[i].line), "text", &length, &error);
        if (!text) fail_msg("%s: %s", cases[i].line, error.message);
        assert_int_equal(length, cases[i].length);
        assert_memory_equal(text, cases[i].text, length + 1);
        free(text);
    }
}

/* The line is refused, and no byte beyond `length` is read. */
static void check_is_wrong(const char *line, size_t length)
{
    dsmoe_error error = {0};
    size_t n;
    char *exact = malloc(length ? length : 1);
    memcpy(exact, line, length);
    char *text = json_line_string(exact, length, "text", &n, &error);
    int32_t *ids = json_line_ids(exact, length, "ids", &n, &error);
    free(exact);
    if (text || ids) fail_msg("%.*s is accepted", (int)length, line);
    assert_true(error.message[0]);
}

static void test_json_line_is_strict(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "[]",
        "{}",
        "{\"a\":\"b\"}",
        "{\"text\":1}",
        "{\"text\":\"a\",\"text\":\"b\"}",
        "{\"text\":\"a\"}{",
        "{\"text\":\"a\",}",
        "{\"text\" \"a\"}",
        "{text:\"a\"}",
        "{\"text\":'a'}",
        "{\"text\":\"\\x\"}",
        "{\"text\":\"\\u12g4\"}",
        "{\"text\":\"\\ud800\"}",
        "{\"text\":\"\\ud800\\u0041\"}",
        "{\"text\":\"\\udc00\"}",
        "{\"text\":\"\x01\"}",
        "{\"text\":\"\xff\"}",
        "{\"text\":\"\xed\xa0\x80\"}",
        "{\"text\":\"\xc0\x80\"}",
        "{\"text\":\"\",\"a\":01}",
        "{\"text\":\"\",\"a\":1.}",
        "{\"text\":\"\",\"a\":.5}",
        "{\"text\":\"\",\"a\":1e}",
        "{\"text\":\"\",\"a\":nul}",
        "{\"text\":\"\",\"a\":[1,]}",
        "{\"text\":\"\",\"a\":[1}",
        "{\"text\":\"\",\"a\":{\"b\"}}",
        "{\"ids\":\"1\"}",
        "{\"ids\":[1,]}",
        "{\"ids\":[1.0]}",
        "{\"ids\":[-1]}",
        "{\"ids\":[01]}",
        "{\"ids\":[2147483648]}",
        "{\"ids\":[1 2]}",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        check_is_wrong(wrong[i], strlen(wrong[i]));
    static const char good[] =
        "{\"a\":[{\"b\":-1.5e3},\"\\u00e9\",true],\"text\":\"\\ud83d\\ude00 \xf0\x9f\x98\x80\"}";
    for (size_t length = 0; length + 1 < sizeof good - 1; length++) check_is_wrong(good, length);
}

static void test_json_line_depth_has_an_end(void **state)
{
    (void)state;
    enum { DEPTH = 100000 };
    char *line = malloc(DEPTH + 8);
    memcpy(line, "{\"a\":", 5);
    memset(line + 5, '[', DEPTH);
    check_is_wrong(line, DEPTH + 5);
    free(line);
}

static void test_json_line_ids(void **state)
{
    (void)state;
    static const char line[] = "{\"ids\":[ 0 , 17,2147483647 ],\"text\":\"x\"}",
                      none[] = "{\"ids\":[]}";
    dsmoe_error error;
    size_t n;
    int32_t *ids = json_line_ids(line, strlen(line), "ids", &n, &error);
    assert_non_null(ids);
    assert_int_equal(n, 3);
    assert_int_equal(ids[0], 0);
    assert_int_equal(ids[1], 17);
    assert_int_equal(ids[2], 2147483647);
    free(ids);
    ids = json_line_ids(none, strlen(none), "ids", &n, &error);
    assert_non_null(ids);
    assert_int_equal(n, 0);
    free(ids);
}

/* ---- ids ----------------------------------------------------------------------------------- */

static void test_ids_between_blanks(void **state)
{
    (void)state;
    static const char text[] = "\n1, 2\t,30\r\n2147483647 ";
    int32_t *ids;
    size_t n;
    ids_source source = {"test", "a.txt"};
    assert_int_equal(ids_parse(source, text, strlen(text), &ids, &n), CLI_OK);
    assert_int_equal(n, 4);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[2], 30);
    assert_int_equal(ids[3], 2147483647);
    free(ids);
    assert_int_equal(ids_parse(source, "", 0, &ids, &n), CLI_OK);
    assert_int_equal(n, 0);
    free(ids);
    static const char *const wrong[] = {"-1", "1 x", "2147483648", "99999999999999999999", "1.0"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        captured c = capture_begin(stderr);
        int code = ids_parse(source, wrong[i], strlen(wrong[i]), &ids, &n);
        capture_end(&c);
        assert_int_equal(code, CLI_FAILURE);
        assert_non_null(strstr(c.text, "a.txt: '"));
    }
    captured c = capture_begin(stderr);
    int code = ids_parse(source, "1\n2 3\n4 \0\033x\n5", 12, &ids, &n);
    capture_end(&c);
    assert_int_equal(code, CLI_FAILURE);
    assert_string_equal(c.text, "dsmoe test: a.txt: '??x' in line 3 is not a token id\n");
}

static void test_ids_of_a_model(void **state)
{
    (void)state;
    static const int32_t ids[] = {0, 9, 10};
    dsmoe_error error;
    assert_int_equal(ids_check(ids, 3, 11, false, &error), DSMOE_OK);
    assert_int_equal(ids_check(ids, 0, 1, false, &error), DSMOE_OK);
    assert_int_equal(ids_check(ids, 3, 10, false, &error), DSMOE_ERROR_ARGUMENT);
    assert_string_equal(error.message,
                        "token 10, number 3, is not below the model's vocab_size 10");
    assert_int_equal(ids_check(ids, 3, 10, true, &error), DSMOE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "vocab_size is 10"));
}

/* ---- streams ------------------------------------------------------------------------------- */

/* Feeds a text byte by byte. shown[i] is how much may be shown after byte i. */
static void test_stream_never_splits_a_character(void **state)
{
    (void)state;
    static const char text[] = "a\xc3\xa9\xf0\x9f\x98\x80\xe2\x82\xac";
    static const size_t shown[] = {1, 1, 3, 3, 3, 3, 7, 7, 7, 10};
    stream s = {0};
    int kept = silence(stdout);
    bool right = true;
    for (size_t i = 0; i < strlen(text); i++)
        right = right && stream_put(&s, text + i, 1) && s.shown == shown[i];
    right = right && stream_put(&s, "\xe2\x82", 2);
    stream_end(&s);
    speak(stdout, kept);
    assert_true(right);
    assert_int_equal(s.length, strlen(text)); /* an incomplete character is left out */
    stream_free(&s);
}

/* Checks what is shown of a text that comes in pieces, and whether it was stopped. */
static void check_stream(const char *const *stops, int n_stops, const char *const *pieces,
                         const char *expected, bool goes_on)
{
    stream s = {.stops = stops, .n_stops = n_stops};
    int kept = silence(stdout);
    bool open = true;
    for (; *pieces && open; pieces++) open = stream_put(&s, *pieces, strlen(*pieces));
    stream_end(&s);
    speak(stdout, kept);
    assert_int_equal(open, goes_on);
    assert_int_equal(s.length, strlen(expected));
    assert_memory_equal(s.text, expected, s.length);
    stream_free(&s);
}

static void test_stream_stops(void **state)
{
    (void)state;
    static const char *const stops[] = {"\n\nUser:", "END", "NDX"};
    check_stream(stops, 3, (const char *[]){"one", "\n", "\n", "User", ": two", NULL}, "one",
                 false);
    check_stream(stops, 3, (const char *[]){"one\n\n", "Use", "d", NULL}, "one\n\nUsed", true);
    check_stream(stops, 3, (const char *[]){"one EN", NULL}, "one EN", true);
    check_stream(stops, 3, (const char *[]){"one E", "ND", "X", NULL}, "one ", false);
    check_stream(stops, 3, (const char *[]){"one\n\n\nUser:", NULL}, "one\n", false);
    check_stream(stops, 0, (const char *[]){"END", NULL}, "END", true);
    /* a complete stop string counts, even if a longer one began earlier */
    static const char *const nested[] = {"abcd", "c"};
    check_stream(nested, 2, (const char *[]){"xab", "c", NULL}, "xab", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_take_every_form),
        cmocka_unit_test(test_options_take_names_in_any_case),
        cmocka_unit_test(test_options_refuse_nonsense),
        cmocka_unit_test(test_options_know_each_other),
        cmocka_unit_test(test_options_switch_off),
        cmocka_unit_test(test_options_in_a_field),
        cmocka_unit_test(test_logit_bias),
        cmocka_unit_test(test_options_refuse_empty_paths),
        cmocka_unit_test(test_options_of_time),
        cmocka_unit_test(test_characters),
        cmocka_unit_test(test_messages_are_one_line),
        cmocka_unit_test(test_text_on_a_terminal),
        cmocka_unit_test(test_json_line_string),
        cmocka_unit_test(test_json_line_is_strict),
        cmocka_unit_test(test_json_line_depth_has_an_end),
        cmocka_unit_test(test_json_line_ids),
        cmocka_unit_test(test_ids_between_blanks),
        cmocka_unit_test(test_ids_of_a_model),
        cmocka_unit_test(test_stream_never_splits_a_character),
        cmocka_unit_test(test_stream_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
