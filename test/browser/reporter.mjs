// Writes each result of node's test runner as a line of JSON, for browser_test.go.
export default async function* reporter(source) {
  for await (const { type, data } of source) {
    if (type === 'test:stdout') {
      for (const line of data.message.split('\n')) if (line.trim() !== '') yield text({ Log: line });
    }
    if (type !== 'test:pass' && type !== 'test:fail') continue;
    // A suite is what its tests are, unless something beside them failed.
    if (data.details.type === 'suite' && (type === 'test:pass' || data.details.error?.failureType === 'subtestsFailed')) continue;
    const off = data.skip ?? data.todo;
    yield text({
      Name: data.name,
      Passed: type === 'test:pass',
      Skip: off === undefined ? '' : off === true || off === '' ? 'no reason given' : off,
      Error: type === 'test:fail' ? why(data.details.error) : '',
      Seconds: (data.details.duration_ms ?? 0) / 1000,
    });
  }
}

const text = (result) => `${JSON.stringify(result)}\n`;

/** The runner wraps what a test threw; that has the place. */
function why(error) {
  const cause = error?.cause ?? error;
  return String(cause?.stack ?? cause);
}
