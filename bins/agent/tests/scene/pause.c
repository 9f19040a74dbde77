/* Stops a program for ever at the renaming of one file, before or after it, and says so by making a file.
 *
 * PAUSE_BEFORE, PAUSE_AFTER   the end of the new name
 * PAUSE_REACHED               the file that is made then
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void stop_at(const char *moment, const char *name)
{
    const char *end = getenv(moment);
    const char *reached = getenv("PAUSE_REACHED");
    size_t most = strlen(name);
    if (!end || !reached || strlen(end) > most || strcmp(name + most - strlen(end), end) != 0)
        return;
    int made = open(reached, O_CREAT | O_WRONLY, 0600);
    if (made >= 0)
        close(made);
    for (;;)
        pause();
}

int rename(const char *from, const char *to)
{
    int (*next)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    stop_at("PAUSE_BEFORE", to);
    int done = next(from, to);
    stop_at("PAUSE_AFTER", to);
    return done;
}
