/* test_shards.c - the tensors of a checkpoint folder: one file or several with an index, and indexes that
 * must be refused (S06). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/shards.h"
#include "scratch.h"

#define INDEX "model.safetensors.index.json"

/* ---- folders to try ----------------------------------------------------------------------- */

/* Sets `path` to a file in the scratch folder. */
static void at(const char *name)
{
    int length = snprintf(path, sizeof path, "%s/%s", directory, name);
    assert_true(length > 0 && (size_t)length < sizeof path);
}

static void write_text(const char *name, const char *text)
{
    at(name);
    write_bytes(text, strlen(text));
}

/* Writes a safetensors file with tensors of two bytes each; their names are separated by blanks. */
static void write_shard(const char *name, const char *tensors)
{
    char names[256], header[2048] = "{", *rest = names;
    size_t length = 1, n_tensors = 0;
    snprintf(names, sizeof names, "%s", tensors);
    for (char *tensor; (tensor = strsep(&rest, " ")); n_tensors++)
        length += (size_t)snprintf(header + length, sizeof header - length,
                                   "%s\"%s\":{\"dtype\":\"U8\",\"shape\":[2],"
                                   "\"data_offsets\":[%zu,%zu]}",
                                   n_tensors ? "," : "", tensor, 2 * n_tensors, 2 * n_tensors + 2);
    header[length++] = '}';
    assert_true(length < 2000);
    char bytes[3000] = {(char)(length & 255), (char)(length >> 8)};
    memcpy(bytes + 8, header, length);
    for (size_t i = 0; i < 2 * n_tensors; i++) bytes[8 + length + i] = (char)(i + 1);
    at(name);
    write_bytes(bytes, 8 + length + 2 * n_tensors);
}

/* Two shards with four tensors and their index. */
static void write_good(void)
{
    write_shard("one.safetensors", "b d");
    write_shard("two.safetensors", "a c");
    write_text(INDEX, "{\"metadata\":{\"total_size\":8},\"weight_map\":{"
                      "\"a\":\"two.safetensors\",\"b\":\"one.safetensors\","
                      "\"c\":\"two.safetensors\",\"d\":\"one.safetensors\"}}");
}

/* Removes a file, or a folder with its contents. */
static void remove_tree(const char *name)
{
    DIR *folder = opendir(name);
    struct stat info;
    if (folder && lstat(name, &info) == 0 && S_ISDIR(info.st_mode)) {
        for (struct dirent *entry; (entry = readdir(folder));) {
            char inner[1024];
            snprintf(inner, sizeof inner, "%.700s/%s", name, entry->d_name);
            if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) remove_tree(inner);
        }
    }
    if (folder) closedir(folder);
    remove(name);
}

static int remove_content(void **state)
{
    (void)state;
    remove_tree(directory);
    return mkdir(directory, 0700);
}

static shards *open_good(const char *folder)
{
    shards *set;
    dsmoe_error error = {0};
    if (shards_open(folder, &set, &error) != DSMOE_OK) fail_msg("%s", error.message);
    return set;
}

/* The message must begin with the folder and contain both texts. */
static void assert_refused(dsmoe_status status, const char *says, const char *and_says)
{
    shards *set = (shards *)path; /* any pointer but NULL */
    dsmoe_error error = {0};
    dsmoe_status found = shards_open(directory, &set, &error);
    if (found != status) fail_msg("status %d: %s", found, error.message);
    assert_null(set);
    assert_int_equal(strncmp(error.message, directory, strlen(directory)), 0);
    if (!strstr(error.message, says) || !strstr(error.message, and_says))
        fail_msg("'%s' does not say '%s' and '%s'", error.message, says, and_says);
    assert_null(strchr(error.message, '\n'));
    assert_int_equal(shards_open(directory, &set, NULL), status);
}

/* ---- good folders ------------------------------------------------------------------------- */

static void assert_four(shards *set)
{
    assert_int_equal(shards_count(set), 4);
    for (size_t i = 0; i < 4; i++) {
        char name[2] = {(char)('a' + i)};
        size_t index = 99;
        assert_string_equal(shards_at(set, i)->name, name);
        assert_ptr_equal(shards_find(set, name, &index), shards_at(set, i));
        assert_int_equal(index, i);
        assert_int_equal(shards_at(set, i)->data[0], i < 2 ? 1 : 3);
        assert_non_null(strstr(shards_path(set, i), i % 2 ? "/one.safetensors" : "/two.safetenso"));
    }
    assert_null(shards_find(set, "e", NULL));
    assert_null(shards_find(set, "", NULL));
    assert_non_null(shards_find(set, "d", NULL));
    shards_close(set);
}

static void test_index(void **state)
{
    (void)state;
    write_good();
    assert_four(open_good(directory));
    shards_close(NULL);

    char folder[300]; /* other spellings of the same folder */
    snprintf(folder, sizeof folder, "%s/", directory);
    assert_four(open_good(folder));
    snprintf(folder, sizeof folder, "%s/../%s", directory, strrchr(directory, '/') + 1);
    assert_four(open_good(folder));
}

static void test_single(void **state)
{
    (void)state;
    write_shard("model.safetensors", "x a.b a");
    shards *set = open_good(directory);
    assert_int_equal(shards_count(set), 3);
    assert_string_equal(shards_at(set, 0)->name, "a");
    assert_string_equal(shards_at(set, 1)->name, "a.b");
    assert_string_equal(shards_at(set, 2)->name, "x");
    assert_non_null(strstr(shards_path(set, 2), "/model.safetensors"));
    shards_close(set);

    write_good(); /* if both are there, the single file is used */
    set = open_good(directory);
    assert_int_equal(shards_count(set), 3);
    shards_close(set);
}

/* Members that an index may leave out or write differently. */
static void test_index_forms(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"weight_map\":{\"a\":\"s\"}}",
        "{\"weight_map\":{\"a\":\"s\"},\"metadata\":null,\"more\":[1]}",
        "{\"weight_map\":{\"a\":\"s\"},\"metadata\":{\"total_parameters\":1}}",
        "{\"weight_map\":{\"a\":\"s\"},\"metadata\":{\"total_size\":2.0}}",
    };
    write_shard("s", "a");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_text(INDEX, texts[i]);
        shards_close(open_good(directory));
    }
}

/* As many tensors as the released model has, in as many files. */
static void test_many_tensors(void **state)
{
    (void)state;
    enum { N_TENSORS = 5466, N_FILES = 7, EACH = (N_TENSORS + N_FILES - 1) / N_FILES };
    char *map, *header;
    size_t map_size, size;
    FILE *index = open_memstream(&map, &map_size), *stream = NULL;
    assert_non_null(index);
    for (int i = 0; i < N_TENSORS; i++) {
        if (i % EACH == 0) stream = open_memstream(&header, &size);
        assert_non_null(stream);
        if (i % EACH == 0) fwrite("\0\0\0\0\0\0\0", 8, 1, stream);
        fprintf(stream, "%c\"t.%d\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}",
                i % EACH ? ',' : '{', i);
        fprintf(index, "%s\"t.%d\":\"s%d\"", i ? "," : "{\"weight_map\":{", i, i / EACH);
        if (i % EACH < EACH - 1 && i < N_TENSORS - 1) continue;
        fputc('}', stream);
        assert_int_equal(fclose(stream), 0);
        for (int b = 0; b < 8; b++) header[b] = (char)((size - 8) >> (8 * b));
        char name[16];
        snprintf(name, sizeof name, "s%d", i / EACH);
        at(name);
        write_bytes(header, size);
        free(header);
    }
    fputs("},\"metadata\":{\"total_size\":0}}", index);
    assert_int_equal(fclose(index), 0);
    write_text(INDEX, map);
    free(map);

    shards *set = open_good(directory);
    assert_int_equal(shards_count(set), N_TENSORS);
    for (int i = 0; i < N_TENSORS; i++) {
        char name[16], file[16];
        size_t place;
        snprintf(name, sizeof name, "t.%d", i);
        snprintf(file, sizeof file, "/s%d", i / EACH);
        assert_non_null(shards_find(set, name, &place));
        assert_non_null(strstr(shards_path(set, place), file));
    }
    shards_close(set);
}

/* ---- what is refused ---------------------------------------------------------------------- */

static void test_no_checkpoint(void **state)
{
    (void)state;
    assert_refused(DSMOE_ERROR_IO, "no model.safetensors and no", INDEX);
    shards *set;
    dsmoe_error error = {0};
    assert_int_equal(shards_open("/nonexistent/folder", &set, &error), DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "/nonexistent/folder: cannot open the folder"));
    write_text("file", "{}");
    assert_int_equal(shards_open(path, &set, &error), DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "not a folder"));
    write_text("model.safetensors", "");
    assert_refused(DSMOE_ERROR_FORMAT, "/model.safetensors: ", "empty");
    write_text("model.safetensors", "garbage!");
    assert_refused(DSMOE_ERROR_FORMAT, "/model.safetensors: ", "header length");
    at("model.safetensors");
    assert_int_equal(remove(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_refused(DSMOE_ERROR_IO, "/model.safetensors: ", "Is a directory");
}

/* S06: the index as JSON. */
static void test_index_text(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "empty"},
        {"{", "bad JSON"},
        {"[]", "no weight_map"},
        {"{}", "no weight_map"},
        {"{\"weight_map\":null}", "weight_map must be an object, not null"},
        {"{\"weight_map\":[\"a\",\"s\"]}", "weight_map must be an object, not an array"},
        {"{\"weight_map\":\"s\"}", "weight_map must be an object, not a string"},
        {"{\"weight_map\":{}}", "weight_map is empty"},
        {"{\"weight_map\":{\"a\":1}}", "tensor 'a' must be a string, not an integer"},
        {"{\"weight_map\":{\"a\":null}}", "tensor 'a' must be a string, not null"},
        {"{\"weight_map\":{\"a\":[\"s\"]}}", "tensor 'a' must be a string, not an array"},
        {"{\"weight_map\":{\"a\":\"s\",\"a\":\"s\"}}", "duplicate"},
        {"{\"weight_map\":{\"a\":\"s\"},\"weight_map\":{\"a\":\"s\"}}", "duplicate"},
        {"{\"weight_map\":{\"a\":\"s\"},\"metadata\":[]}", "metadata must be an object"},
        {"{\"weight_map\":{\"a\":\"s\"},\"metadata\":{\"total_size\":\"2\"}}", "a number"},
        {"{\"weight_map\":{\"a\":\"s\"},\"metadata\":{\"total_size\":null}}", "a number"},
        {"{\"weight_map\":{\"a\":\"s\"},\"metadata\":{\"total_size\":3}}",
         "total_size is 3, but the tensors have 2 bytes"},
        {"{\"weight_map\":{\"a\":\"s\"},\"metadata\":{\"total_size\":0}}", "total_size is 0"},
        {"{\"weight_map\":{\"a\":\"s\"},\"metadata\":{\"total_size\":-2}}", "total_size is -2"},
        {"{\"weight_map\":{\"a\":\"s\"},\"metadata\":{\"total_size\":2.5}}", "total_size is 2.5"},
        {"{\"weight_map\":{\"a\":\"s\"},\"metadata\":{\"total_size\":1e300}}", "total_size is 1"},
        {"{\"weight_map\":{\"a\":\"s\"},\"metadata\":{\"total_size\":9223372036854775807}}",
         "total_size is 9.2"},
    };
    write_shard("s", "a");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text(INDEX, cases[i].text);
        assert_refused(DSMOE_ERROR_FORMAT, INDEX ": ", cases[i].says);
    }
}

/* S06: names of files outside the folder. Each of these files is good. */
static void test_names(void **state)
{
    (void)state;
    write_shard("s", "a");
    at("inner");
    assert_int_equal(mkdir(path, 0700), 0);
    write_shard("inner/s", "a");
    char absolute[300], same[300];
    snprintf(absolute, sizeof absolute, "%s/s", directory);
    snprintf(same, sizeof same, "../%s/s", strrchr(directory, '/') + 1);
    const char *const names[] = {
        "../../etc/passwd", "/etc/passwd", "..", ".", "", "inner/s", "./s", "s/", "//s",
        "inner/../s",       absolute,      same,
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char text[500];
        snprintf(text, sizeof text, "{\"weight_map\":{\"some\":\"%s\"}}", names[i]);
        write_text(INDEX, text);
        assert_refused(DSMOE_ERROR_FORMAT, INDEX ": weight_map: the file of tensor 'some'",
                       "is not a plain file name");
    }
    write_text(INDEX, "{\"weight_map\":{\"a\":\"s\\u0000\"}}");
    assert_refused(DSMOE_ERROR_FORMAT, INDEX, "bad JSON");
    char text[1000] = "{\"weight_map\":{\"a\":\"";
    memset(text + strlen(text), 'n', 300);
    strcat(text, "\"}}");
    write_text(INDEX, text);
    assert_refused(DSMOE_ERROR_IO, "cannot open the file", "name too long");
    write_text(INDEX, "{\"weight_map\":{\"a\":\"inner\"}}");
    assert_refused(DSMOE_ERROR_IO, "/inner", "Is a directory");
}

/* S06: an index that disagrees with the files. */
static void test_disagreement(void **state)
{
    (void)state;
    write_good();
    at("two.safetensors");
    assert_int_equal(remove(path), 0);
    assert_refused(DSMOE_ERROR_IO, "/two.safetensors: cannot open", "No such file");
    write_shard("two.safetensors", "a c b");
    assert_refused(DSMOE_ERROR_FORMAT, "tensor 'b' is also in", "/one.safetensors");
    write_shard("two.safetensors", "a");
    assert_refused(DSMOE_ERROR_FORMAT, "/two.safetensors: there is no tensor 'c'", INDEX);
    write_shard("two.safetensors", "a c e");
    assert_refused(DSMOE_ERROR_FORMAT, "/two.safetensors: tensor 'e' is not in the weight_map",
                   INDEX);
    write_shard("two.safetensors", "a b");
    write_shard("one.safetensors", "c d");
    assert_refused(DSMOE_ERROR_FORMAT, INDEX ": weight_map: tensor '", "is not in '");
    write_text("one.safetensors", "{}");
    assert_refused(DSMOE_ERROR_FORMAT, "/one.safetensors: ", "too few");
    at("one.safetensors");
    assert_int_equal(remove(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0); /* must not be waited for */
    assert_refused(DSMOE_ERROR_IO, "/one.safetensors: ", "not a regular file");
}

/* ---- symbolic links ----------------------------------------------------------------------- */

static void link_to(const char *target, const char *name)
{
    at(name);
    remove(path);
    assert_int_equal(symlink(target, path), 0);
}

/* S06: a link may point inside the folder, but not out of it. */
static void test_links(void **state)
{
    (void)state;
    write_good();
    at("inner");
    assert_int_equal(mkdir(path, 0700), 0);
    write_shard("inner/file", "a c");
    link_to("inner/file", "two.safetensors");
    assert_four(open_good(directory));
    link_to("/dev/zero", "two.safetensors");
    assert_refused(DSMOE_ERROR_IO, "/two.safetensors: a symbolic link", "/dev/zero");
    link_to("nowhere", "two.safetensors");
    assert_refused(DSMOE_ERROR_IO, "/two.safetensors: ", "No such file");
    link_to("two.safetensors", "two.safetensors");
    assert_refused(DSMOE_ERROR_IO, "/two.safetensors: ", "cannot open the file");

    /* The folder itself may be reached through a link. A folder whose name only begins with its name is
     * outside. */
    char folder[300], outside[300], target[300];
    snprintf(folder, sizeof folder, "%s/m", directory);
    snprintf(outside, sizeof outside, "%s/mm", directory);
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(mkdir(outside, 0700), 0);
    write_shard("mm/file", "a");
    link_to("../mm/file", "m/model.safetensors");
    shards *set;
    dsmoe_error error = {0};
    assert_int_equal(shards_open(folder, &set, &error), DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "leads out of the folder"));
    link_to("mm", "alias");
    at("mm/file");
    snprintf(target, sizeof target, "%s/mm/model.safetensors", directory);
    assert_int_equal(rename(path, target), 0);
    at("alias");
    shards_close(open_good(path));

    link_to("../" INDEX, "m/" INDEX);
    at("m/model.safetensors");
    assert_int_equal(remove(path), 0);
    assert_int_equal(shards_open(folder, &set, &error), DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, INDEX ": a symbolic link"));
}

/* The layout of the hub's cache: every file of a snapshot is a link to blobs/HASH. */
static void test_cache(void **state)
{
    (void)state;
    static const char *const folders[] = {"blobs", "snapshots", "snapshots/rev", "other", "blobs2"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        at(folders[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    write_shard("blobs/0abc", "a");
    write_shard("blobs2/0abc", "a");
    write_text("blobs/1def", "{\"weight_map\":{\"a\":\"model-1.safetensors\"}}");
    link_to("../../blobs/0abc", "snapshots/rev/model-1.safetensors");
    link_to("../../blobs/1def", "snapshots/rev/" INDEX);
    char snapshot[300];
    snprintf(snapshot, sizeof snapshot, "%s/snapshots/rev", directory);
    shards *set = open_good(snapshot);
    assert_non_null(strstr(shards_path(set, 0), "/snapshots/rev/model-1.safetensors"));
    shards_close(set);
    link_to("snapshots/rev", "alias");
    at("alias");
    shards_close(open_good(path));

    static const char *const targets[] = {"../../other/0abc", "../../blobs2/0abc",
                                          "../../blobs/../blobs2/0abc"};
    write_shard("other/0abc", "a");
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        link_to(targets[i], "snapshots/rev/model-1.safetensors");
        dsmoe_error error = {0};
        assert_int_equal(shards_open(snapshot, &set, &error), DSMOE_ERROR_IO);
        assert_non_null(strstr(error.message, "leads out of the folder"));
    }
    /* a folder blobs/ alone is no cache */
    link_to("../blobs/0abc", "other/model.safetensors");
    at("other");
    assert_int_equal(shards_open(path, &set, NULL), DSMOE_ERROR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_index, remove_content),
        cmocka_unit_test_setup(test_single, remove_content),
        cmocka_unit_test_setup(test_index_forms, remove_content),
        cmocka_unit_test_setup(test_many_tensors, remove_content),
        cmocka_unit_test_setup(test_no_checkpoint, remove_content),
        cmocka_unit_test_setup(test_index_text, remove_content),
        cmocka_unit_test_setup(test_names, remove_content),
        cmocka_unit_test_setup(test_disagreement, remove_content),
        cmocka_unit_test_setup(test_links, remove_content),
        cmocka_unit_test_setup_teardown(test_cache, remove_content, remove_content),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
