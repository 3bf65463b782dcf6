/* test_guard.c - which requests are allowed: hosts, origins, keys and files of keys. */
#include "support.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "scratch.h"
#include "serve/guard.h"

static const char *const hosts[] = {"models.example.org", "Other.Example:8080"};
static const char *const origins[] = {"https://chat.example.org", "http://tool.example:3000"};
static const char *const everybody[] = {"*"};

static int status_of(const guard *g, guard_request r)
{
    int status = 0;
    if (!r.method) r.method = "POST";
    if (!r.path) r.path = "/v1/chat/completions";
    const char *message = guard_check(g, &r, &status);
    if (message) assert_true(strlen(message) > 10);
    return message ? status : 200;
}

static void test_hosts(void **state)
{
    (void)state;
    static const struct {
        const char *host, *origin;
        int status;
    } cases[] = {
        {"127.0.0.1:8080", NULL, 200},
        {"127.0.0.1", NULL, 200},
        {"192.168.1.17:80", NULL, 200},
        {"[::1]:8080", NULL, 200},
        {"[fe80::1]", NULL, 200},
        {"localhost", NULL, 200},
        {"LocalHost:65535", NULL, 200},
        {"localhost.", NULL, 200},
        {"localhost.:80", NULL, 200},
        {"chat.localhost:8080", NULL, 200},
        {"models.example.org", NULL, 200},
        {"MODELS.example.ORG.:443", NULL, 200},
        {"other.example", NULL, 200},
        {NULL, NULL, 200},
        {NULL, "http://localhost", 403},
        {"", NULL, 403},
        {"evil.com", NULL, 403},
        {"evil.com:8080", NULL, 403},
        {"localhost.evil.com", NULL, 403},
        {"evillocalhost", NULL, 403},
        {".localhost", NULL, 403},
        {"127.0.0.1.evil.com", NULL, 403},
        {"127.0.0.1.nip.io", NULL, 403},
        {"127.1", NULL, 403},
        {"2130706433", NULL, 403},
        {"::1", NULL, 403},
        {"[::1", NULL, 403},
        {"[::1]evil.com", NULL, 403},
        {"[localhost]", NULL, 403},
        {"[evil.com]:80", NULL, 403},
        {"localhost:", NULL, 403},
        {"localhost:80a", NULL, 403},
        {"localhost:99999", NULL, 403},
        {"localhost:8080:1", NULL, 403},
        {"user@localhost", NULL, 403},
        {"localhost/", NULL, 403},
        {"localhost evil.com", NULL, 403},
        {"models.example.org.evil.com", NULL, 403},
        {".", NULL, 403},
    };
    guard g = {.hosts = hosts, .n_hosts = COUNT(hosts)};
    for (size_t i = 0; i < COUNT(cases); i++) {
        guard_request r = {.host = cases[i].host, .origin = cases[i].origin};
        int status = status_of(&g, r);
        if (status != cases[i].status)
            fail_msg("Host %s: %d", cases[i].host ? cases[i].host : "(none)", status);
        r.local = true;
        if (!cases[i].origin) assert_int_equal(status_of(&g, r), 200);
    }
    char long_name[600];
    memset(long_name, 'a', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    assert_int_equal(status_of(&g, (guard_request){.host = long_name}), 403);
}

static void test_own_name(void **state)
{
    (void)state;
    guard g = {0};
    char name[300] = "", *end;
    assert_int_equal(gethostname(name, 200), 0);
    end = name + strlen(name);
    assert_int_equal(status_of(&g, (guard_request){.host = name}), 200);
    strcpy(end, ":8080");
    assert_int_equal(status_of(&g, (guard_request){.host = name}), 200);
    strcpy(end, ".local:8080");
    assert_int_equal(status_of(&g, (guard_request){.host = name}), 200);
    strcpy(end, ".evil.com");
    assert_int_equal(status_of(&g, (guard_request){.host = name}), 403);
}

static void test_origins(void **state)
{
    (void)state;
    static const struct {
        const char *host, *origin;
        int status;
    } cases[] = {
        {"localhost:8080", NULL, 200},
        {"localhost:8080", "http://localhost:8080", 200},
        {"localhost:8080", "http://localhost:3000", 200},
        {"localhost:8080", "https://LOCALHOST", 200},
        {"localhost:8080", "http://127.0.0.1:5173", 200},
        {"localhost:8080", "http://127.9.9.9", 200},
        {"localhost:8080", "http://[::1]:3000", 200},
        {"192.168.1.5:8080", "http://192.168.1.5:8080", 200},
        {"192.168.1.5", "http://192.168.1.5", 200},
        {"192.168.1.5:80", "http://192.168.1.5", 200},
        {"192.168.1.5:443", "https://192.168.1.5", 200},
        {"models.example.org", "https://models.example.org", 200},
        {"models.example.org.", "https://MODELS.example.org", 200},
        {"[fe80::1]:81", "http://[fe80::1]:81", 200},
        {"localhost", "https://chat.example.org", 200},
        {"localhost", "HTTPS://chat.example.org", 200},
        {"localhost", "http://tool.example:3000", 200},
        {"localhost", "http://chat.example.org", 403},
        {"localhost", "http://tool.example:3001", 403},
        {"localhost", "https://chat.example.org.evil.com", 403},
        {"192.168.1.5:8080", "http://192.168.1.5:8081", 403},
        {"192.168.1.5:80", "https://192.168.1.5", 403},
        {"192.168.1.5:8080", "http://192.168.1.6:8080", 403},
        {"localhost", "null", 403},
        {"localhost", "", 403},
        {"localhost", "localhost", 403},
        {"localhost", "file://", 403},
        {"localhost", "ftp://localhost", 403},
        {"localhost", "chrome-extension://abc", 403},
        {"localhost", "http://", 403},
        {"localhost", "http://evil.com", 403},
        {"localhost", "http://localhost.evil.com", 403},
        {"192.168.1.5", "http://localhost.", 403},
        {"localhost", "http://a.localhost", 403},
        {"localhost", "http://localhost:", 403},
        {"localhost", "http://localhost:80x", 403},
        {"localhost", "http://localhost@evil.com", 403},
        {"localhost", "http://localhost/", 403},
        {"localhost", "http://127.0.0.1.evil.com", 403},
        {"localhost", "http://128.0.0.1", 403},
        {"localhost", "http://[::2]", 403},
        {"localhost", "http://localhost, http://evil.com", 403},
    };
    guard g = {
        .hosts = hosts, .n_hosts = COUNT(hosts), .origins = origins, .n_origins = COUNT(origins)};
    guard open = g;
    open.origins = everybody;
    open.n_origins = 1;
    for (size_t i = 0; i < COUNT(cases); i++) {
        guard_request r = {.host = cases[i].host, .origin = cases[i].origin};
        int status = status_of(&g, r);
        if (status != cases[i].status)
            fail_msg("Origin %s: %d", cases[i].origin ? cases[i].origin : "(none)", status);
        const char *allowed = guard_allowed_origin(&g, &r);
        if (status == 200 && r.origin)
            assert_string_equal(allowed, r.origin);
        else
            assert_null(allowed);
        assert_int_equal(status_of(&open, r), 200);
        if (r.origin) assert_string_equal(guard_allowed_origin(&open, &r), "*");
    }
}

/* Host and Origin are checked on every path and for every method. */
static void test_everywhere(void **state)
{
    (void)state;
    guard g = {0};
    static const char *const paths[] = {"/", "/health", "/index.html", "/v1/models", "/nothing"};
    static const char *const methods[] = {"GET", "OPTIONS", "POST", "HEAD", "BREW"};
    for (size_t i = 0; i < COUNT(paths); i++)
        for (size_t j = 0; j < COUNT(methods); j++) {
            guard_request r = {.method = methods[j], .path = paths[i], .host = "evil.com"};
            assert_int_equal(status_of(&g, r), 403);
            r.host = "localhost";
            assert_int_equal(status_of(&g, r), 200);
            r.origin = "http://evil.com";
            assert_int_equal(status_of(&g, r), 403);
        }
}

static void test_keys(void **state)
{
    (void)state;
    guard g = {0};
    char longest[513], longer[514];
    memset(longest, 'k', 512);
    longest[512] = '\0';
    memset(longer, 'k', 513);
    longer[513] = '\0';
    assert_int_equal(guard_add_key(&g, "secret", NULL), DSMOE_OK);
    assert_int_equal(guard_add_key(&g, "sk-Second_1", NULL), DSMOE_OK);
    assert_int_equal(guard_add_key(&g, longest, NULL), DSMOE_OK);
    char bearer[600], bearer_longer[600];
    snprintf(bearer, sizeof bearer, "Bearer %s", longest);
    snprintf(bearer_longer, sizeof bearer_longer, "Bearer %s", longer);
    const struct {
        const char *authorization, *api_key;
        int status;
    } cases[] = {
        {"Bearer secret", NULL, 200},
        {"bearer secret", NULL, 200},
        {"BEARER   secret  ", NULL, 200},
        {"Bearer sk-Second_1", NULL, 200},
        {bearer, NULL, 200},
        {NULL, "secret", 200},
        {NULL, longest, 200},
        {"Bearer wrong", "secret", 200},
        {"Basic abc", "sk-Second_1", 200},
        {NULL, NULL, 401},
        {"", "", 401},
        {"Bearer", NULL, 401},
        {"Bearer ", NULL, 401},
        {"Bearersecret", NULL, 401},
        {"secret", NULL, 401},
        {"Basic secret", NULL, 401},
        {"Bearer Secret", NULL, 401},
        {"Bearer secre", NULL, 401},
        {"Bearer secrett", NULL, 401},
        {"Bearer secret secret", NULL, 401},
        {bearer_longer, NULL, 401},
        {NULL, longer, 401},
        {NULL, "secret\n", 401},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        guard_request r = {.host = "localhost",
                           .authorization = cases[i].authorization,
                           .api_key = cases[i].api_key};
        int status = status_of(&g, r);
        if (status != cases[i].status)
            fail_msg("case %zu (%s): %d", i, r.authorization ? r.authorization : "", status);
        r.method = "OPTIONS";
        assert_int_equal(status_of(&g, r), 200);
        r.host = "evil.com";
        assert_int_equal(status_of(&g, r), 403);
    }
    guard_free(&g);
    assert_int_equal(status_of(&g, (guard_request){.host = "localhost"}), 200);
}

static void test_public(void **state)
{
    (void)state;
    guard g = {0};
    assert_int_equal(guard_add_key(&g, "secret", NULL), DSMOE_OK);
    static const struct {
        const char *path;
        bool is_public;
    } cases[] = {
        {"/", true},
        {"/health", true},
        {"/v1/health", true},
        {"/index.html", true},
        {"/v1/models", false},
        {"/health/", false},
        {"/healthy", false},
        {"//", false},
        {"//index.html", false},
        {"/../index.html", false},
        {"/%69ndex.html", false},
        {"index.html", false},
        {"/index.html?", false},
        {"/completion", false},
        {"", false},
        {"*", false},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        if (guard_is_public(cases[i].path) != cases[i].is_public) fail_msg("%s", cases[i].path);
        guard_request r = {.path = cases[i].path, .host = "localhost"};
        assert_int_equal(status_of(&g, r), cases[i].is_public ? 200 : 401);
    }
    guard_free(&g);
}

static void assert_key_refused(const char *key)
{
    guard g = {0};
    dsmoe_error error = {0};
    assert_int_equal(guard_add_key(&g, key, &error), DSMOE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "key"));
    assert_int_equal(g.n_keys, 0);
}

static void test_bad_keys(void **state)
{
    (void)state;
    char longer[514];
    memset(longer, 'k', 513);
    longer[513] = '\0';
    assert_key_refused("");
    assert_key_refused(longer);
    assert_key_refused("a\tb");
    assert_key_refused("a\nb");
    assert_key_refused("\x7f");
}

static void test_key_file(void **state)
{
    (void)state;
    guard g = {0};
    static const char text[] = "# the team's\r\n\r\n  first key \r\nsecond\n   \n#third\nlast";
    write_bytes(text, sizeof text - 1);
    assert_int_equal(guard_add_key_file(&g, path, NULL), DSMOE_OK);
    assert_int_equal(g.n_keys, 3);
    static const char *const good[] = {"first key", "second", "last"};
    static const char *const bad[] = {"#third", "# the team's", "third", "first", ""};
    for (size_t i = 0; i < COUNT(good); i++)
        assert_int_equal(status_of(&g, (guard_request){.host = "localhost", .api_key = good[i]}),
                         200);
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(status_of(&g, (guard_request){.host = "localhost", .api_key = bad[i]}),
                         401);
    guard_free(&g);
}

static void assert_file_refused(const void *bytes, size_t size, const char *says)
{
    guard g = {0};
    dsmoe_error error = {0};
    write_bytes(bytes, size);
    assert_int_not_equal(guard_add_key_file(&g, path, &error), DSMOE_OK);
    if (!strstr(error.message, says) || !strstr(error.message, path)) fail_msg("%s", error.message);
    guard_free(&g);
}

static void test_bad_key_files(void **state)
{
    (void)state;
    assert_file_refused("", 0, "empty");
    assert_file_refused("\n", 1, "no key");
    assert_file_refused("# nothing\n \r\n", 13, "no key");
    assert_file_refused("good\nb\0d\n", 9, "line 2");
    assert_file_refused("a\x01", 2, "line 1");
    char longer[520];
    memset(longer, 'k', sizeof longer);
    assert_file_refused(longer, sizeof longer, "1 to 512");
    guard g = {0};
    dsmoe_error error = {0};
    assert_int_equal(guard_add_key_file(&g, "/nowhere/keys", &error), DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "/nowhere/keys"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),         cmocka_unit_test(test_own_name),
        cmocka_unit_test(test_origins),       cmocka_unit_test(test_everywhere),
        cmocka_unit_test(test_keys),          cmocka_unit_test(test_public),
        cmocka_unit_test(test_bad_keys),      cmocka_unit_test(test_key_file),
        cmocka_unit_test(test_bad_key_files),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
