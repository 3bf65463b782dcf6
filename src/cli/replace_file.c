/* replace_file.c - a file that appears under its name only when it is whole. */
#include "cli/replace_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

int replace_file_begin(const char *command, const char *path, replace_file *out)
{
    struct stat info;
    *out = (replace_file){.path = path};
    if (!*path) return cli_failure(command, "a file needs a name that is not empty");
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return cli_failure(
            command, "%s: is there already and is not a regular file; choose another name", path);
    if (asprintf(&out->temporary, "%s.XXXXXX", path) < 0) {
        out->temporary = NULL;
        return cli_failure(command, "%s: not enough memory", path);
    }
    int fd = mkstemp(out->temporary);
    if (fd >= 0) out->file = fdopen(fd, "w");
    if (out->file) return CLI_OK;
    int exit_code = cli_failure(command, "%s: %s", path, strerror(errno));
    if (fd >= 0) {
        close(fd);
        unlink(out->temporary);
    }
    free(out->temporary);
    return exit_code;
}

int replace_file_end(const char *command, replace_file *out)
{
    mode_t mask = umask(0);
    umask(mask);
    errno = 0;
    int fd = fileno(out->file);
    bool written = !ferror(out->file) && fflush(out->file) == 0 && fchmod(fd, 0666 & ~mask) == 0 &&
                   fsync(fd) == 0;
    int problem = errno;
    if (fclose(out->file) != 0 && written) {
        written = false;
        problem = errno;
    }
    if (written && rename(out->temporary, out->path) != 0) {
        written = false;
        problem = errno;
    }
    if (!written) {
        unlink(out->temporary);
        cli_failure(command, "%s: cannot be written: %s", out->path,
                    problem ? strerror(problem) : "the disk took only a part");
    }
    free(out->temporary);
    return written ? CLI_OK : CLI_FAILURE;
}
