import i18next from 'i18next';
import { initReactI18next } from 'react-i18next';
import { en } from './en';
import { zh } from './zh';

export const languages = { en: 'English', 'zh-CN': '简体中文' } as const;
export type Language = keyof typeof languages;

const stored = 'gpumeter.language';

/** preferred is the language that was chosen, else the first the browser asks for. */
export function preferred(asked: readonly string[], chosen: string | null): Language {
  if (chosen !== null && chosen in languages) return chosen as Language;
  for (const tag of asked) {
    if (/^zh\b/i.test(tag)) return 'zh-CN';
    if (/^en\b/i.test(tag)) return 'en';
  }
  return 'en';
}

function remembered(): string | null {
  try {
    return localStorage.getItem(stored);
  } catch {
    return null; // storage may be forbidden
  }
}

export function setLanguage(language: Language) {
  try {
    localStorage.setItem(stored, language);
  } catch {
    // The choice then lasts until the page is closed.
  }
  void i18next.changeLanguage(language);
}

i18next.on('languageChanged', (language) => {
  document.documentElement.lang = language;
});

void i18next.use(initReactI18next).init({
  resources: { en: { translation: en }, 'zh-CN': { translation: zh } },
  lng: preferred(navigator.languages, remembered()),
  fallbackLng: 'en',
  initAsync: false,
  interpolation: { escapeValue: false }, // React escapes
});

export default i18next;
