import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

const server = process.env.GPUMETER_URL ?? 'http://127.0.0.1:8080';

export default defineConfig({
  plugins: [react()],
  // The server puts a new nonce in its place with every answer (web/ui.go).
  html: { cspNonce: 'GPUMETER_CSP_NONCE' },
  build: {
    target: 'es2023',
    modulePreload: { polyfill: false },
    // A data: URL would be one more source that the policy of the page has to allow.
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 700, // kB before packing; scripts/bundle.mjs has the limit that counts
  },
  server: { proxy: { '/api': server, '/auth': server, '/openapi.json': server } },
});
