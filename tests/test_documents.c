/* test_documents.c - finding files to learn from and reading them document by document, with hostile
 * folders and lines among them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "data_files.h"
#include "formats/documents.h"
#include "scratch.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- helpers -------------------------------------------------------------------------------- */

static dsmoe_bad_bytes asked; /* the option of the current test */

static int fresh(void **state)
{
    asked = DSMOE_BAD_BYTES_REPLACE;
    return empty_directory(state);
}

static document_list open_paths(const char *const *paths, int n_paths)
{
    document_list list;
    dsmoe_error error = {0};
    if (document_list_open(paths, n_paths, asked, &list, &error) != DSMOE_OK)
        fail_msg("%s", error.message);
    return list;
}

static document_list open_directory(void)
{
    const char *folder = directory;
    return open_paths(&folder, 1);
}

static void assert_refused(const char *given, dsmoe_status status, const char *says)
{
    document_list list;
    dsmoe_error error = {0};
    dsmoe_status found = document_list_open(&given, 1, asked, &list, &error);
    if (found != status) fail_msg("status %d: %s", found, error.message);
    if (!strstr(error.message, given) || !strstr(error.message, says))
        fail_msg("'%s' does not name the file and say '%s'", error.message, says);
    assert_null(list.sources);
    assert_int_equal(document_list_open(&given, 1, asked, &list, NULL), status);
}

/* "path:kind path:kind …"; the paths are relative to the scratch folder. */
static void assert_sources(const document_list *list, const char *expected)
{
    char found[4096] = "";
    for (size_t i = 0; i < list->n_sources; i++) {
        const document_source *source = &list->sources[i];
        assert_true(source->kind >= 0 && source->kind < list->n_kinds);
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s%s:%s", i ? " " : "",
                 source->path + strlen(directory) + 1, list->kinds[source->kind]);
    }
    assert_string_equal(found, expected);
}

/* The text of dsmoe_data_files_describe, without the scratch folder's name. */
static void assert_left_out(const document_list *list, const char *expected)
{
    char text[4096], *at;
    dsmoe_data_files_describe(&list->files, text, sizeof text);
    while ((at = strstr(text, directory))) {
        size_t length = strlen(directory) + 1;
        memmove(at, at + length, strlen(at + length) + 1);
    }
    assert_string_equal(text, expected);
}

/* All documents, each in brackets; tokens as numbers. */
typedef struct gathered {
    char text[4096];
    int n, fail_at;
} gathered;

/* "{Us: …|Au: …*}": the first letters of the role, and a star after messages to be learned. */
static void gather_conversation(gathered *g, const document *d)
{
    const dialogue *c = d->conversation;
    size_t length = 0, at = strlen(g->text);
    assert_true(!d->text && !d->tokens && d->line > 0);
    at += (size_t)snprintf(g->text + at, sizeof g->text - at, "%s{", c->is_plain ? "plain" : "");
    for (size_t i = 0; i < c->n_messages; i++) {
        const dialogue_message *m = &c->messages[i];
        assert_int_equal(strlen(m->text), m->length);
        length += m->length;
        at += (size_t)snprintf(g->text + at, sizeof g->text - at, "%s%.1s: %s%s", i ? "|" : "",
                               m->role, m->text, m->is_answer ? "*" : "");
    }
    snprintf(g->text + at, sizeof g->text - at, "}");
    assert_int_equal(length, d->length);
}

static dsmoe_status gather(void *context, const document *d, dsmoe_error *error)
{
    gathered *g = context;
    if (++g->n == g->fail_at) return status_fail(error, DSMOE_ERROR_ARGUMENT, "the visitor's own");
    size_t at = strlen(g->text);
    if (d->conversation) {
        gather_conversation(g, d);
        return DSMOE_OK;
    }
    assert_true(d->text ? d->length > 0 && !d->tokens : d->n_tokens > 0);
    if (d->text) snprintf(g->text + at, sizeof g->text - at, "[%.*s]", (int)d->length, d->text);
    for (size_t i = 0; !d->text && i < d->n_tokens; i++) {
        uint32_t token = 0;
        memcpy(&token, d->tokens + i * (size_t)d->token_size, (size_t)d->token_size);
        snprintf(g->text + strlen(g->text), sizeof g->text - strlen(g->text), "%u ", token);
    }
    return DSMOE_OK;
}

static void assert_documents(const char *name, const char *expected)
{
    const char *given = in_directory(name);
    document_list list = open_paths(&given, 1);
    gathered g = {0};
    dsmoe_error error = {0};
    if (document_each(&list.sources[0], gather, &g, &error) != DSMOE_OK)
        fail_msg("%s", error.message);
    assert_string_equal(g.text, expected);
    document_list_close(&list);
}

static void assert_bad_line(const char *lines, const char *says, const char *and_says)
{
    write_text("bad.jsonl", lines);
    const char *given = in_directory("bad.jsonl");
    document_list list = open_paths(&given, 1);
    gathered g = {0};
    dsmoe_error error = {0};
    assert_int_equal(document_each(&list.sources[0], gather, &g, &error), DSMOE_ERROR_FORMAT);
    if (!strstr(error.message, "bad.jsonl") || !strstr(error.message, says) ||
        !strstr(error.message, and_says))
        fail_msg("'%s' does not name the file and say '%s' and '%s'", error.message, says,
                 and_says);
    assert_null(strchr(error.message, '\n'));
    assert_int_equal(document_each(&list.sources[0], gather, &g, NULL), DSMOE_ERROR_FORMAT);
    document_list_close(&list);
}

/* ---- finding files -------------------------------------------------------------------------- */

static void test_folder_order_and_kinds(void **state)
{
    (void)state;
    make_folder("c");
    make_folder("c/deep");
    write_text("c/list.c", "int x;");
    write_text("c/deep/z.h", "int z;");
    write_text("c/A.c", "int a;");
    write_text("c.txt", "beside it");
    write_text("b.JSONL", "{\"text\":\"b\"}\n"); /* upper or lower case */
    write_text("Zoo.txt", "upper case sorts first");
    write_text("\xc3\xa4.txt", "above ASCII comes last");
    write_text(".hidden", "not read");
    make_folder(".git");
    write_text(".git/config", "not read");
    document_list list = open_directory();
    assert_sources(&list, "Zoo.txt:Zoo b.JSONL:b c/A.c:c c/deep/z.h:c c/list.c:c c.txt:c "
                          "\xc3\xa4.txt:\xc3\xa4");
    assert_left_out(&list, "");
    assert_int_equal(list.n_kinds, 4);
    assert_int_equal(list.sources[0].size, strlen("upper case sorts first"));
    assert_int_equal(list.sources[1].form, DOCUMENT_JSONL);
    document_list_close(&list);
    document_list_close(&list); /* does nothing the second time */

    char slashes[400];
    snprintf(slashes, sizeof slashes, "%s//", directory);
    const char *given = slashes;
    list = open_paths(&given, 1);
    assert_int_equal(list.n_sources, 7);
    assert_null(strstr(list.sources[0].path, "//"));
    document_list_close(&list);
}

static void test_given_files(void **state)
{
    (void)state;
    make_folder("x");
    write_text("x/one.two.txt", "1");
    write_text(".rc", "given by name, so it counts");
    write_text("other", "no suffix");
    const char *const given[] = {in_directory("x/one.two.txt"), in_directory(".rc"),
                                 in_directory("other"), in_directory("x")};
    document_list list = open_paths(given, 4);
    assert_sources(&list, "x/one.two.txt:one.two .rc:.rc other:other");
    assert_left_out(&list, "1 of 4 files left out (1 byte): 1 found twice; the first is "
                           "x/one.two.txt");
    document_list_close(&list);
}

static void test_many_kinds(void **state)
{
    (void)state;
    char name[32];
    for (int i = 0; i < DOCUMENT_MAX_KINDS; i++) {
        snprintf(name, sizeof name, "k%02d.txt", i);
        write_text(name, "text");
    }
    document_list list = open_directory();
    assert_int_equal(list.n_kinds, DOCUMENT_MAX_KINDS);
    assert_string_equal(list.kinds[DOCUMENT_MAX_KINDS - 1], "k15");
    document_list_close(&list);
    write_text("k16.txt", "one too many");
    write_text("k17.txt", "and another");
    list = open_directory();
    assert_int_equal(list.n_kinds, DOCUMENT_MAX_KINDS);
    assert_string_equal(list.kinds[DOCUMENT_MAX_KINDS - 2], "k14");
    for (size_t i = DOCUMENT_MAX_KINDS - 1; i < list.n_sources; i++)
        assert_string_equal(list.kinds[list.sources[i].kind], "other");
    document_list_close(&list);
    write_text("other.txt", "a kind of that name that is there already takes the rest");
    const char *const given[] = {in_directory("other.txt"), directory};
    list = open_paths(given, 2);
    assert_string_equal(list.kinds[0], "other");
    assert_string_equal(list.kinds[DOCUMENT_MAX_KINDS - 1], "k14");
    assert_int_equal(list.sources[list.n_sources - 1].kind, 0);
    assert_int_equal(list.sources[1 + 15].kind, 0);
    document_list_close(&list);
}

/* ---- hostile folders ------------------------------------------------------------------------ */

static void make_socket(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", in_directory(name));
    int descriptor = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(descriptor >= 0);
    assert_int_equal(bind(descriptor, (struct sockaddr *)&address, sizeof address), 0);
    close(descriptor);
}

static void test_what_is_left_out(void **state)
{
    (void)state;
    write_text("good.txt", "text");
    write_data("picture.png", "\x89PNG\r\n\x1a\n\0\0", 10);
    write_data("nul.txt", "eight ok\0", 9);
    write_data("beyond.txt", "\xf4\x90\x80\x80", 4); /* only bad bytes */
    write_data("weights.bin", "not tokens", 10);
    write_data("empty.txt", "", 0);
    assert_int_equal(symlink("nowhere", in_directory("dangling")), 0);
    assert_int_equal(mkfifo(in_directory("fifo"), 0600), 0);
    make_socket("socket");
    document_list list = open_directory();
    assert_sources(&list, "good.txt:good");
    assert_left_out(&list, "8 of 9 files left out (33 bytes): 4 not text, 1 empty, 1 behind "
                           "broken or circular links, 2 not files; the first is beyond.txt");
    document_list_close(&list);
}

/* A link stands for the file or folder it points to. What is reached twice is read once, and loops end. */
static void test_links(void **state)
{
    (void)state;
    make_folder("d");
    make_folder("d/in");
    make_folder("elsewhere");
    write_text("d/good.txt", "text");
    write_text("elsewhere/far.txt", "far");
    assert_int_equal(symlink("../../elsewhere/far.txt", in_directory("d/in/link.txt")), 0);
    assert_int_equal(symlink("../elsewhere", in_directory("d/other")), 0);
    assert_int_equal(symlink("../d", in_directory("elsewhere/round")), 0);
    assert_int_equal(symlink("good.txt", in_directory("d/same.txt")), 0);
    assert_int_equal(symlink(".", in_directory("d/in/loop")), 0);
    assert_int_equal(symlink("..", in_directory("d/in/up")), 0);
    assert_int_equal(symlink("/", in_directory("d/root")), 0);
    write_text("elsewhere/new.txt", "new");
    const char *given = in_directory("d");
    document_list list = open_paths(&given, 1);
    assert_sources(&list, "d/good.txt:good d/in/link.txt:in d/other/new.txt:other");
    assert_left_out(&list,
                    "6 of 9 files left out (7 bytes): 3 behind broken or circular links, 3 found "
                    "twice; the first is d/in/loop");
    document_list_close(&list);
}

/* One byte that is not UTF-8 does not exclude a file. */
static void test_bad_bytes(void **state)
{
    (void)state;
    write_data("latin.txt", "caf\xe9 au lait", 12);
    write_data("cut.txt", "more text \xe4\xbd", 12);
    write_text("good.txt", "text");
    write_data("lines.jsonl", "{\"text\":\"a\"}\n{\"text\":\"b\xff\"}\n", 27);
    document_list list = open_directory();
    assert_sources(&list, "cut.txt:cut good.txt:good latin.txt:latin lines.jsonl:lines");
    assert_left_out(&list,
                    "4 bytes are not UTF-8 and read as U+FFFD, in 3 files; the first is cut.txt");
    document_list_close(&list);
    assert_documents("latin.txt", "[caf\xef\xbf\xbd au lait]");
    assert_documents("cut.txt", "[more text \xef\xbf\xbd\xef\xbf\xbd]");
    assert_documents("lines.jsonl", "[a][b\xef\xbf\xbd]");
    asked = DSMOE_BAD_BYTES_KEEP;
    assert_documents("latin.txt", "[caf\xe9 au lait]");
    assert_bad_line("{\"text\":\"a\"}\n{\"text\":\"b\xff\"}\n", "line 2", "bad JSON");
    assert_int_equal(unlink(in_directory("bad.jsonl")), 0);
    asked = DSMOE_BAD_BYTES_SKIP;
    list = open_directory();
    assert_sources(&list, "good.txt:good");
    assert_left_out(&list, "3 of 4 files left out (51 bytes): 3 not UTF-8 throughout; the first is "
                           "cut.txt");
    document_list_close(&list);
    assert_refused(in_directory("latin.txt"), DSMOE_ERROR_FORMAT, "1 not UTF-8 throughout");
}

/* After the start of a file NUL is a bad byte like others. Text in another encoding can be kept. */
static void test_what_is_binary(void **state)
{
    (void)state;
    static char text[9000];
    memset(text, 'x', sizeof text);
    text[8500] = '\0';
    write_data("log.txt", text, sizeof text);
    memset(text, 0xe9, sizeof text / 2);
    write_data("greek.txt", text, 8500);
    document_list list = open_directory();
    assert_sources(&list, "log.txt:log");
    assert_left_out(&list,
                    "1 of 2 files left out (8500 bytes): 1 not text; the first is greek.txt; 1 "
                    "byte is not UTF-8 and read as U+FFFD, in 1 file; the first is log.txt");
    document_list_close(&list);
    asked = DSMOE_BAD_BYTES_KEEP;
    list = open_directory();
    assert_sources(&list, "greek.txt:greek log.txt:log");
    document_list_close(&list);
    asked = (dsmoe_bad_bytes)3;
    assert_int_equal(document_list_open((const char *const[]){directory}, 1, asked, &list, NULL),
                     DSMOE_ERROR_ARGUMENT);
}

/* Files given by name follow the same rules, but something must be left to read. */
static void test_given_badly(void **state)
{
    (void)state;
    write_data("latin.txt", "caf\xe9 au lait", 12);
    write_data("nul.txt", "eight ok, and more\0", 19);
    write_data("weights.bin", "not tokens", 10);
    write_data("empty.txt", "", 0);
    make_folder("hollow");
    write_data("hollow/latin.txt", "\xe9", 1);
    assert_int_equal(mkfifo(in_directory("fifo"), 0600), 0);
    assert_int_equal(symlink("circle", in_directory("circle")), 0);
    assert_documents("latin.txt", "[caf\xef\xbf\xbd au lait]");
    assert_refused(in_directory("nul.txt"), DSMOE_ERROR_FORMAT, "1 not text");
    assert_refused(in_directory("hollow"), DSMOE_ERROR_FORMAT, "an encoding other than UTF-8");
    assert_refused(in_directory("weights.bin"), DSMOE_ERROR_FORMAT, "no shard of tokens");
    assert_refused(in_directory("empty.txt"), DSMOE_ERROR_FORMAT, "1 empty");
    assert_refused(in_directory("hollow"), DSMOE_ERROR_FORMAT, "hollow/latin.txt");
    assert_refused(in_directory("fifo"), DSMOE_ERROR_IO, "not a regular file");
    assert_refused(in_directory("circle"), DSMOE_ERROR_IO, "cannot open");
    assert_refused(in_directory("absent"), DSMOE_ERROR_IO, "No such file");
    const char *const both[] = {in_directory("nul.txt"), in_directory("latin.txt")};
    document_list list = open_paths(both, 2);
    assert_sources(&list, "latin.txt:latin");
    assert_int_equal(list.files.n_left_out[DSMOE_LEFT_OUT_BINARY], 1);
    document_list_close(&list);
    dsmoe_error error = {0};
    assert_int_equal(document_list_open(NULL, 0, asked, &list, &error), DSMOE_ERROR_ARGUMENT);
    assert_true(error.message[0] != '\0');
}

/* A file that is written to while it is read. */
static void test_changing_files(void **state)
{
    (void)state;
    write_text("a.txt", "some text");
    const char *given = in_directory("a.txt");
    document_list list = open_paths(&given, 1);
    gathered g = {0};
    dsmoe_error error = {0};
    write_text("a.txt", "some");
    assert_int_equal(document_each(&list.sources[0], gather, &g, &error), DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "a.txt: the file had 9 bytes and now has 4"));
    assert_int_equal(unlink(in_directory("a.txt")), 0);
    assert_int_equal(document_each(&list.sources[0], gather, &g, &error), DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "a.txt: cannot open"));
    document_list_close(&list);
}

static dsmoe_status shrink(void *context, const document *d, dsmoe_error *error)
{
    (void)error;
    assert_int_equal(truncate(context, 10), 0);
    size_t sum = 0;
    for (size_t i = 0; i < d->length; i++) sum += (unsigned char)d->text[i]; /* no SIGBUS */
    return sum > 0 ? DSMOE_OK : DSMOE_ERROR_ARGUMENT;
}

static void test_shrinking_file(void **state)
{
    (void)state;
    static char text[50000];
    memset(text, 'x', sizeof text);
    write_data("a.txt", text, sizeof text);
    const char *given = in_directory("a.txt");
    document_list list = open_paths(&given, 1);
    dsmoe_error error = {0};
    assert_int_equal(document_each(&list.sources[0], shrink, list.sources[0].path, &error),
                     DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "a.txt: the file changed"));
    document_list_close(&list);
}

/* Root may read everything, so as root the rest of the test runs as nobody. */
enum { NOBODY = 65534 };

static void become(uid_t user)
{
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(setegid(user), 0);
    assert_int_equal(seteuid(user), 0);
}

static void test_unreadable(void **state)
{
    (void)state;
    bool root = geteuid() == 0;
    assert_int_equal(chmod(directory, 0777), 0);
    if (root) become(NOBODY);
    write_text("open.txt", "text");
    write_text("shut.txt", "text");
    assert_int_equal(chmod(in_directory("shut.txt"), 0), 0);
    assert_refused(directory, DSMOE_ERROR_IO, "shut.txt: cannot open the file");
    assert_int_equal(unlink(in_directory("shut.txt")), 0);
    make_folder("closed");
    assert_int_equal(chmod(in_directory("closed"), 0), 0);
    assert_refused(directory, DSMOE_ERROR_IO, "closed: cannot open the folder");
    assert_int_equal(chmod(in_directory("closed"), 0700), 0);
    if (root) become(0);
}

static void test_odd_names(void **state)
{
    (void)state;
    write_text("new\nline\x1b[31m.txt", "one");
    write_text("\xff\xfe.txt", "two");
    write_text("100%s %n.txt", "three");
    document_list list = open_directory();
    assert_int_equal(list.n_sources, 3);
    assert_string_equal(list.kinds[0], "100%s %n");
    assert_string_equal(list.kinds[1], "new?line?[31m");
    assert_string_equal(list.kinds[2], "??");
    document_list_close(&list);
    write_text("a\nb.jsonl", "[");
    list = open_directory();
    dsmoe_error error = {0};
    gathered g = {0};
    assert_int_equal(document_each(&list.sources[1], gather, &g, &error), DSMOE_ERROR_FORMAT);
    assert_null(strchr(error.message, '\n'));
    document_list_close(&list);
}

static void test_deep_folders(void **state)
{
    (void)state;
    char name[400] = "d";
    for (int depth = 0; depth < 80; depth++) {
        make_folder(name);
        strcat(name, "/d");
    }
    assert_refused(directory, DSMOE_ERROR_IO, "nested deeper");
}

/* ---- documents ------------------------------------------------------------------------------ */

static void test_text_files(void **state)
{
    (void)state;
    write_text("a.txt", "two\nlines\r\n");
    assert_documents("a.txt", "[two\nlines\r\n]");
    write_text("mark.txt", "\xef\xbb\xbfmarked");
    assert_documents("mark.txt", "[marked]");
    write_text("only_mark.txt", "\xef\xbb\xbf");
    assert_documents("only_mark.txt", "");
    write_text("a.json", "{\"text\":\"is text as it stands\"}");
    assert_documents("a.json", "[{\"text\":\"is text as it stands\"}]");
}

static void test_json_lines(void **state)
{
    (void)state;
    write_text("a.jsonl", "\xef\xbb\xbf{\"text\":\"one\"}\n"
                          "\n"
                          "  \t\r\n"
                          "{\"id\":7,\"text\":\"two\\n\\u00e4\",\"output\":3}\r\n"
                          "{\"text\":\"\"}\n"
                          "{\"text\":\"no end of line\"}");
    assert_documents("a.jsonl", "[one][two\n\xc3\xa4][no end of line]");
    write_text("b.jsonl", "{\"instruction\":\"Add.\",\"output\":\"5\"}\n"
                          "{\"instruction\":\"Add.\",\"input\":\"2 3\",\"output\":\"5\"}\n"
                          "{\"instruction\":\"Add.\",\"input\":\"\",\"output\":\"5\"}\n"
                          "{\"instruction\":\"Nothing to learn.\",\"output\":\"\"}\n");
    assert_documents("b.jsonl", "{u: Add.|a: 5*}"
                                "{u: Add.\n2 3|a: 5*}"
                                "{u: Add.|a: 5*}"
                                "{u: Nothing to learn.|a: }");
    write_text("blank.jsonl", "\n\n \n");
    assert_documents("blank.jsonl", "");
}

/* Conversations in every form, with optional members. */
static void test_conversations(void **state)
{
    (void)state;
    static const struct {
        const char *line, *expected;
    } cases[] = {
        {"{\"prompt\":\"2+2=\",\"completion\":\"4\"}", "plain{u: 2+2=|a: 4*}"},
        {"{\"prompt\":\"\",\"completion\":\"\"}", "plain{u: |a: }"},
        {"{\"prompt\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\","
         "\"content\":\"b\"},{\"role\":\"user\",\"content\":\"c\"}],"
         "\"completion\":[{\"role\":\"assistant\",\"content\":\"d\"}]}",
         "{u: a|a: b|u: c|a: d*}"},
        {"{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\","
         "\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"a\"}],\"id\":[1,{}]}",
         "{s: s|u: u|a: a*}"},
        {"{\"prompt\":\"kept for search\",\"messages\":[{\"role\":\"assistant\","
         "\"content\":\"a\"}]}",
         "{a: a*}"},
        {"{\"messages\":[]}", "{}"},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"mask\":1},"
         "{\"role\":\"assistant\",\"content\":\"b\",\"mask\":0},"
         "{\"role\":\"assistant\",\"content\":\"c\",\"mask\":true},"
         "{\"role\":\"user\",\"content\":\"d\",\"mask\":0},"
         "{\"role\":\"assistant\",\"content\":\"\",\"mask\":null}]}",
         "{a: a|a: b*|a: c|u: d|a: }"},
        {"{\"conversations\":[{\"from\":\"human\",\"value\":\"h\"},{\"from\":\"gpt\","
         "\"value\":\"g\"},{\"from\":\"user\",\"value\":\"u\"},{\"from\":\"assistant\","
         "\"value\":\"a\"}],\"system\":\"s\"}",
         "{s: s|u: h|a: g*|u: u|a: a*}"},
        {"{\"conversations\":[{\"from\":\"system\",\"value\":\"s\"}],\"system\":null}", "{s: s}"},
        {"{\"instruction\":\"i\",\"input\":null,\"output\":\"o\",\"system\":\"s\","
         "\"history\":[[\"q\",\"r\"],[\"t\",\"\"]]}",
         "{s: s|u: q|a: r*|u: t|a: |u: i|a: o*}"},
        {"{\"instruction\":\"i\",\"input\":\"n\",\"output\":\"o\",\"history\":null}",
         "{u: i\nn|a: o*}"},
        {"{\"text\":\"t\",\"prompt\":\"p\",\"instruction\":\"i\"}", "[t]"},
        {"{\"prompt\":\"p\",\"chosen\":\"c\",\"rejected\":\"r\"}", "plain{u: p|a: c*|u: p|a: r*}"},
        {"{\"prompt\":[{\"role\":\"assistant\",\"content\":\"p\"}],"
         "\"chosen\":[{\"role\":\"assistant\",\"content\":\"c\"}],"
         "\"rejected\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"r\"}]}",
         "{a: p|a: c*|a: p|u: q|a: r*}"},
        {"{\"prompt\":\"u\",\"chosen\":[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\","
         "\"content\":\"x\"},{\"role\":\"assistant\",\"content\":\"c\"}],"
         "\"rejected\":[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"x\"},"
         "{\"role\":\"assistant\",\"content\":\"r\"}]}",
         "{u: u|a: x|a: c*|u: u|a: x|a: r*}"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        write_text("c.jsonl", cases[i].line);
        assert_documents("c.jsonl", cases[i].expected);
    }
}

static void test_broken_lines(void **state)
{
    (void)state;
    const char *good = "{\"text\":\"fine\"}\n\n";
    static const struct {
        const char *line, *says;
    } cases[] = {
        {"{\"text\":\"cut", "bad JSON in column"},
        {"{\"text\":\"a\"} {\"text\":\"b\"}", "bad JSON"},
        {"not json", "bad JSON"},
        {"{\"text\":\"a\",\"text\":\"b\"}", "duplicate"},
        {"{\"text\":\"\\u0000\"}", "NUL"},
        {"[\"text\"]", "must be an object, not an array"},
        {"\"text\"", "must be an object, not a string"},
        {"{}", "none of \"text\""},
        {"{\"Text\":\"a\"}", "none of \"text\""},
        {"{\"text\":null}", "\"text\" must be a string, not null"},
        {"{\"text\":[\"a\"]}", "\"text\" must be a string, not an array"},
        {"{\"instruction\":\"a\"}", "none of \"text\""},
        {"{\"output\":\"a\"}", "none of \"text\""},
        {"{\"instruction\":\"a\",\"output\":5}", "\"output\" must be a string"},
        {"{\"instruction\":\"a\",\"input\":[],\"output\":\"b\"}", "\"input\" must be a string"},
        {"{\"instruction\":null,\"output\":\"b\"}", "\"instruction\" is null"},
        {"{\"instruction\":\"a\",\"output\":null}", "\"output\" is null"},
        {"{\"instruction\":\"a\",\"output\":\"b\",\"history\":[[\"q\"]]}",
         "entry 1 of \"history\" must be a pair of strings"},
        {"{\"instruction\":\"a\",\"output\":\"b\",\"history\":[[\"q\",\"r\"],[\"q\",1]]}",
         "entry 2 of \"history\""},
        {"{\"instruction\":\"a\",\"output\":\"b\",\"history\":{}}", "\"history\" must be a list"},
        {"{\"instruction\":\"a\",\"output\":\"b\",\"text\":\"c\"}",
         "\"text\" and \"instruction\" in one line"},
        {"{\"messages\":[],\"conversations\":[]}", "\"messages\" and \"conversations\" in one"},
        {"{\"chosen\":\"b\",\"rejected\":\"c\"}", "are strings, and there is no \"prompt\""},
        {"{\"prompt\":\"a\",\"chosen\":[],\"rejected\":\"c\"}",
         "must both be strings or both be lists"},
        {"{\"prompt\":\"a\",\"chosen\":null,\"rejected\":null}",
         "must both be strings or both be lists"},
        {"{\"prompt\":[],\"chosen\":[{\"role\":\"user\",\"content\":\"a\"}],\"rejected\":[]}",
         "\"rejected\" is empty"},
        {"{\"chosen\":[{\"role\":\"user\",\"content\":\"a\"}],\"rejected\":[{\"role\":\"user\","
         "\"content\":\"b\"}]}",
         "no beginning in common"},
        {"{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":\"c\",\"completion\":\"d\"}",
         "\"prompt\" and \"chosen\" in one line"},
        {"{\"prompt\":\"a\",\"completion\":[]}", "must both be strings or both be lists"},
        {"{\"prompt\":null,\"completion\":\"\"}", "must both be strings or both be lists"},
        {"{\"messages\":null}", "\"messages\" is null"},
        {"{\"messages\":{\"role\":\"user\"}}", "\"messages\" must be a list, not an object"},
        {"{\"messages\":[1]}", "message 1 of \"messages\": must be an object, not an integer"},
        {"{\"messages\":[{\"content\":\"a\"}]}", "message 1 of \"messages\": it has no \"role\""},
        {"{\"messages\":[{\"role\":\"user\",\"content\":null}]}", "it has no \"content\""},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[]}]}", "\"content\" must be a string"},
        {"{\"messages\":[{\"role\":7,\"content\":\"\"}]}", "\"role\" must be a string"},
        {"{\"messages\":[{\"role\":\"tool\",\"content\":\"a\"}]}",
         "\"role\" is \"tool\", not system, user or assistant"},
        {"{\"messages\":[{\"role\":\"human\",\"content\":\"a\"}]}", "\"role\" is \"human\""},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"mask\":2}]}",
         "\"mask\" must be 0 or 1"},
        {"{\"conversations\":[{\"from\":\"human\",\"value\":\"a\"},{\"from\":\"observation\","
         "\"value\":\"b\"}]}",
         "message 2 of \"conversations\": \"from\" is \"observation\", not system, human or gpt"},
        {"{\"conversations\":[{\"role\":\"user\",\"content\":\"a\"}]}", "it has no \"from\""},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char lines[512];
        snprintf(lines, sizeof lines, "%s%s\n%s", good, cases[i].line, good);
        assert_bad_line(lines, "line 3: ", cases[i].says);
    }
    assert_bad_line("[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
                    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
                    "line 1: ", "nested deeper");
}

static void test_visitor_fails(void **state)
{
    (void)state;
    write_text("a.jsonl", "{\"text\":\"a\"}\n{\"text\":\"b\"}\n{\"text\":\"c\"}\n");
    document_list list = open_directory();
    gathered g = {.fail_at = 2};
    dsmoe_error error = {0};
    assert_int_equal(document_each(&list.sources[0], gather, &g, &error), DSMOE_ERROR_ARGUMENT);
    assert_string_equal(error.message, "the visitor's own");
    assert_string_equal(g.text, "[a]");
    assert_int_equal(g.n, 2);
    assert_int_equal(unlink(list.sources[0].path), 0); /* removed after it was found */
    assert_int_equal(document_each(&list.sources[0], gather, &g, &error), DSMOE_ERROR_IO);
    document_list_close(&list);
}

static void test_shards(void **state)
{
    (void)state;
    static const uint32_t tokens[] = {1, 65535, 7};
    write_shard("a.bin", 20240520, 1, 3, tokens, 3, 2);
    assert_documents("a.bin", "1 65535 7 ");
    static const uint32_t wide[] = {1, 4294967295u};
    write_shard("b.bin", 20240801, 7, 2, wide, 2, 4);
    assert_documents("b.bin", "1 4294967295 ");
    write_shard("none.bin", 20240520, 1, 0, tokens, 0, 2);
    assert_documents("none.bin", "");
    write_shard("lies.bin", 20240520, 1, 4, tokens, 3, 2);
    assert_refused(in_directory("lies.bin"), DSMOE_ERROR_FORMAT, "says 4 tokens");
    assert_refused(directory, DSMOE_ERROR_FORMAT, "lies.bin"); /* a shard is never skipped */
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fresh, clear_directory)
    const struct CMUnitTest tests[] = {
        TEST(test_folder_order_and_kinds),
        TEST(test_given_files),
        TEST(test_many_kinds),
        TEST(test_what_is_left_out),
        TEST(test_links),
        TEST(test_bad_bytes),
        TEST(test_what_is_binary),
        TEST(test_given_badly),
        TEST(test_changing_files),
        TEST(test_shrinking_file),
        TEST(test_unreadable),
        TEST(test_odd_names),
        TEST(test_deep_folders),
        TEST(test_text_files),
        TEST(test_json_lines),
        TEST(test_conversations),
        TEST(test_broken_lines),
        TEST(test_visitor_fails),
        TEST(test_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
